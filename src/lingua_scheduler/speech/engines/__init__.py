"""The engines that come with the project, one module each; `plugins.py` knows their names."""
