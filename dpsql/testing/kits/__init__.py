"""Kits of engines that are in this package, each the KIT of a module."""
