"""What several of the packages beside the core use."""
