//! Models of a network: packets (discrete events), rates (flow), equations (fluid); scenarios, workloads, claims.
