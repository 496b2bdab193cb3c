"""Diagnosis of failures, in words."""
