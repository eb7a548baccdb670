"""The report of a version: one page for people, from what its run keeps at the tracker."""
