"""Background work: embedding, sweeping, and the Lambda handlers of queues and jobs."""
