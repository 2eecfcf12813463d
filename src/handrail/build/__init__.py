"""The build: read every tool, report every problem at once, and write the artifact only if there are none."""
