//! Drivers: the vendor libraries behind the device contract.
