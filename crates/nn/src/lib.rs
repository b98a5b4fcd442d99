//! Networks, data and training.
