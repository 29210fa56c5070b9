"""Workers by name, module or file: found, loaded, checked and described."""
