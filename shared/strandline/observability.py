"""The log: one structured line a request and a decision; ids, counts and sizes, never memory."""

from aws_lambda_powertools import Logger

logger = Logger(service="strandline", use_rfc3339=True)
