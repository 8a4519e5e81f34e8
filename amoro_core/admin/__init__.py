"""What people and their tools can do, each operation once: whatever offers it only translates."""
