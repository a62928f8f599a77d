#!/bin/sh
# Node for the CDK of the tests: without threads that collect garbage and compile beside it, its
# start takes half the processor time.
exec node --single-threaded "$@"
