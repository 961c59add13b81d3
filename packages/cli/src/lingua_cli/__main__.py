"""``python -m lingua_cli`` is the ``lingua`` command."""

from lingua_cli.main import main

raise SystemExit(main())
