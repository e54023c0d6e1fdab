"""What threads, tasks and forked children need beside the work."""
