"""What people see: terminal, markdown, JSON."""
