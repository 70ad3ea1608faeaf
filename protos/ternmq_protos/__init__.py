"""The contracts between the services, generated from `protos/ternmq/v1/*.proto`."""
