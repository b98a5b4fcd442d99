//! What a test chose.

/// The choices of `PANOPLY_FAKE_CUDA`.
#[derive(Clone, Debug)]
pub struct Config {
    pub devices: usize,
    pub driver: i32,
    pub capability: i32,
    pub memory: u64,
    pub pools: i32,
    pub init: i32,
    pub broken: Option<usize>,
    pub prohibited: Option<usize>,
}

impl Config {
    /// What the environment says; nonsense is a panic, which ends the test.
    pub fn read() -> Config {
        let mut config = Config {
            devices: 1,
            driver: 12040,
            capability: 86,
            memory: 256 << 20,
            pools: 1,
            init: 0,
            broken: None,
            prohibited: None,
        };
        let text = std::env::var("PANOPLY_FAKE_CUDA").unwrap_or_default();
        for pair in text.split(',').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or_else(|| panic!("{pair}: not name=number"));
            let number: u64 = value.parse().unwrap_or_else(|_| panic!("{pair}: not a number"));
            match name {
                "devices" => config.devices = number as usize,
                "driver" => config.driver = number as i32,
                "capability" => config.capability = number as i32,
                "memory" => config.memory = number,
                "pools" => config.pools = number as i32,
                "init" => config.init = number as i32,
                "broken" => config.broken = Some(number as usize),
                "prohibited" => config.prohibited = Some(number as usize),
                _ => panic!("{name}: no such choice"),
            }
        }
        config
    }
}
