"""What is typed: where statements end, and what may stand next in one."""
