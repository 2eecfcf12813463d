"""The routes: one module for each part of the API. Each reads its request strictly, asks the parts, and answers JSON."""
