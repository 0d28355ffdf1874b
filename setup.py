"""Builds volta._native; everything else about the distribution is in pyproject.toml."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from setuptools import setup
from setuptools.command.build_ext import build_ext


class ParallelBuild(build_ext):
    """Compiles the C files of the extension at the same time, one compiler per CPU."""

    def build_extension(self, ext: Any) -> None:
        compiler = self.compiler
        compile_files = compiler.compile

        def compile_in_parallel(sources: list[str], **options: Any) -> list[str]:
            with ThreadPoolExecutor(os.cpu_count()) as workers:
                objects = list(workers.map(lambda source: compile_files([source], **options), sources))
            return [path for one in objects for path in one]

        compiler.compile = compile_in_parallel
        try:
            super().build_extension(ext)
        finally:
            compiler.compile = compile_files


setup(cffi_modules=["engine/csrc/build_ffi.py:ffi"], cmdclass={"build_ext": ParallelBuild})
