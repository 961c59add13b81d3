"""What tests of care share."""

from __future__ import annotations

import pytest

# Before they are imported, so that their assertions tell what they compared.
pytest.register_assert_rewrite("care.damage", "jobs.deployment")
