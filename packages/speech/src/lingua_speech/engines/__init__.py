"""The engines of the project, one module or package each; `plugins.py` lists their names."""
