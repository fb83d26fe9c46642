"""What a kernel may touch: the provisioner is the seam that the sandbox levels fill."""
