"""What makes a function a stage, and a stage a process that DVC runs."""
