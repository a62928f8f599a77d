"""The CDK stack."""
