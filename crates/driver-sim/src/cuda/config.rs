//! Configuration by the test.

/// The settings of `PANOPLY_FAKE_CUDA`, `PANOPLY_FAKE_HIP` and `PANOPLY_FAKE_ZE`.
#[derive(Clone, Debug)]
pub struct Config {
    pub devices: usize,
    pub driver: i32,
    pub capability: i32,
    /// The version of cuBLASLt.
    pub cublas: i32,
    /// The version of hipBLASLt, in its own counting.
    pub hipblaslt: i32,
    /// The version of HIP's driver.
    pub hip: i32,
    /// The architecture of HIP devices, with its digits read as hexadecimal.
    pub architecture: u64,
    /// True if HIP kernels are executed.
    pub execute: bool,
    pub memory: u64,
    pub pools: i32,
    pub init: i32,
    pub broken: Option<usize>,
    pub prohibited: Option<usize>,
    /// The CUDA kernel that computes wrong results.
    pub wrong: Option<String>,
}

impl Config {
    /// Reads the environment; panics on invalid settings, which fails the test.
    pub fn read() -> Config {
        let mut config = Config {
            devices: 1,
            driver: 12040,
            capability: 86,
            cublas: 12,
            hipblaslt: 1000,
            hip: 60_032_831,
            architecture: 0x90a,
            execute: false,
            memory: 256 << 20,
            pools: 1,
            init: 0,
            broken: None,
            prohibited: None,
            wrong: None,
        };
        let names = ["PANOPLY_FAKE_CUDA", "PANOPLY_FAKE_HIP", "PANOPLY_FAKE_ZE"];
        let given = names.map(|name| std::env::var(name).unwrap_or_default());
        for pair in given.iter().flat_map(|text| text.split(',')).filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or_else(|| panic!("{pair}: not name=number"));
            if name == "wrong" {
                config.wrong = Some(value.to_string());
                continue;
            }
            let radix = if name == "architecture" { 16 } else { 10 };
            let number = u64::from_str_radix(value, radix).unwrap_or_else(|_| panic!("{pair}: not a number"));
            match name {
                "devices" => config.devices = number as usize,
                "driver" => config.driver = number as i32,
                "cublas" => config.cublas = number as i32,
                "hipblaslt" => config.hipblaslt = number as i32,
                "hip" => config.hip = number as i32,
                "execute" => config.execute = number != 0,
                "architecture" => config.architecture = number,
                "capability" => config.capability = number as i32,
                "memory" => config.memory = number,
                "pools" => config.pools = number as i32,
                "init" => config.init = number as i32,
                "broken" => config.broken = Some(number as usize),
                "prohibited" => config.prohibited = Some(number as usize),
                _ => panic!("{name}: unknown setting"),
            }
        }
        config
    }
}
