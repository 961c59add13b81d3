"""Pipelines that make the weights the project ships; never imported by the product."""
