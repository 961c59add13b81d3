"""``python -m lingua_scheduler`` is the ``lingua`` command."""

from lingua_scheduler.cli.main import main

raise SystemExit(main())
