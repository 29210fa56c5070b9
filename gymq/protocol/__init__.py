"""The protocol between gymq's processes: messages, subjects and packed tokens."""
