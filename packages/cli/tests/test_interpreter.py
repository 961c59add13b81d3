"""The build of the interpreter: read from what it says about itself."""

from __future__ import annotations

import platform

import pytest

from lingua_cli.interpreter import InterpreterBuild, optimisations_in, this_interpreter

pytestmark = pytest.mark.unit


def test_options_of_configure_tell_the_optimisations() -> None:
    official = "'--build=x86_64-linux-gnu' '--enable-optimizations' '--with-lto' '--enable-shared'"
    assert optimisations_in(official, "") == ("PGO", "LTO")
    assert optimisations_in("'--enable-optimizations' '--with-lto=thin'", "") == ("PGO", "LTO")
    assert optimisations_in("'--prefix=/opt/python' '--with-lto=no'", "-O3") == ()
    assert optimisations_in("", "") == ()


def test_flags_of_the_compiler_tell_them_too() -> None:
    assert optimisations_in("", "-O3 -fprofile-use -fprofile-correction") == ("PGO",)
    assert optimisations_in("", "-flto -fuse-linker-plugin") == ("LTO",)


def test_the_line_names_version_platform_and_build() -> None:
    build = InterpreterBuild("CPython 3.13.1", "Linux x86_64", "GCC 12.2.0", ("PGO", "LTO"))
    assert str(build) == "CPython 3.13.1, Linux x86_64, GCC 12.2.0, built with PGO and LTO"
    plain = InterpreterBuild("CPython 3.13.1", "Linux x86_64", "GCC 12.2.0", ())
    assert str(plain).endswith("GCC 12.2.0, no PGO or LTO declared")


def test_this_interpreter_is_described() -> None:
    assert platform.python_version() in str(this_interpreter())
