//! Graphics cards and their drivers as the operating system reports them, without calling any driver.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use panoply::internal::library_search::{self, Library};

/// State of the machine as reported by the operating system. Most fields are empty on systems other than Linux.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// Kernel and architecture.
    pub system: String,
    /// Name of the container runtime, if the process runs in a container.
    pub container: Option<&'static str>,
    /// True in WSL, where cards are not on a PCI bus.
    pub wsl: bool,
    /// True if the PCI bus can be listed.
    pub bus: bool,
    /// Graphics cards and accelerators on the PCI bus.
    pub cards: Vec<Card>,
    /// Device nodes through which programs access a card.
    pub nodes: Vec<Node>,
    /// Version of NVIDIA's kernel module, if it is loaded.
    pub nvidia_module: Option<String>,
    /// Libraries that this process has loaded.
    pub loaded: Vec<PathBuf>,
    folders: Vec<PathBuf>,
}

/// A graphics card or accelerator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// PCI address.
    pub address: String,
    /// PCI vendor id.
    pub vendor: u16,
    /// PCI device id.
    pub device: u16,
    /// Kernel driver bound to the card.
    pub driver: Option<String>,
}

/// A device node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Path of the node.
    pub path: String,
    /// True if this user can open it.
    pub allowed: bool,
}

impl Card {
    /// Returns the name of the vendor.
    pub fn maker(&self) -> &'static str {
        match self.vendor {
            0x10de => "NVIDIA",
            0x1002 => "AMD",
            0x8086 => "Intel",
            0x1af4 | 0x1234 | 0x15ad | 0x1414 => "virtual",
            _ => "other",
        }
    }
}

impl Machine {
    /// Reads the state of this machine. Call it after device discovery, so that the libraries which that loaded are visible.
    pub fn read_system() -> Machine {
        Machine::read(Path::new("/"), &std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default())
    }

    /// Reads the state of the machine with this root folder, which is `/` except in tests.
    pub fn read(root: &Path, library_path: &OsStr) -> Machine {
        let text = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
        let version = text("proc/version");
        let kernel =
            version.split_whitespace().take(3).filter(|word| *word != "version").collect::<Vec<&str>>().join(" ");
        let kernel = if kernel.is_empty() { std::env::consts::OS.to_string() } else { kernel };
        let module = text("proc/driver/nvidia/version");
        let is_version =
            |word: &&str| word.contains('.') && word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        Machine {
            system: format!("{kernel} {}", std::env::consts::ARCH),
            container: container(root, &text("proc/1/cgroup")),
            wsl: version.to_lowercase().contains("microsoft"),
            bus: root.join("sys/bus/pci/devices").is_dir(),
            cards: cards(&root.join("sys/bus/pci/devices")),
            nodes: nodes(root),
            nvidia_module: module.split_whitespace().find(is_version).map(str::to_string),
            loaded: loaded(&text("proc/self/maps")),
            folders: library_search::folders(root, library_path),
        }
    }

    /// Returns the library of this name (`libcuda.so.1`) that is loaded, else the one that the dynamic loader would find.
    pub fn library(&self, name: &str) -> Option<Library> {
        let stem = name.split(".so").next().unwrap_or(name);
        let is_it = |path: &&PathBuf| {
            path.file_name()
                .and_then(|file| file.to_str()?.strip_prefix(stem))
                .is_some_and(|rest| rest.starts_with(".so"))
        };
        if let Some(path) = self.loaded.iter().find(is_it) {
            return Some(Library { path: path.clone(), flaw: None });
        }
        library_search::find(&self.folders, name)
    }

    /// Returns the cards of a vendor.
    pub fn cards_of(&self, vendor: u16) -> impl Iterator<Item = &Card> {
        self.cards.iter().filter(move |card| card.vendor == vendor)
    }

    /// Returns the nodes whose path has this prefix.
    pub fn nodes_under(&self, prefix: &str) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(move |node| node.path.starts_with(prefix))
    }
}

fn container(root: &Path, cgroup: &str) -> Option<&'static str> {
    let marks =
        [(".dockerenv", "Docker"), ("run/.containerenv", "Podman"), ("run/secrets/kubernetes.io", "Kubernetes")];
    let words = [("kubepods", "Kubernetes"), ("docker", "Docker"), ("lxc", "LXC")];
    let mark = marks.into_iter().find(|(path, _)| root.join(path).exists()).map(|(_, name)| name);
    mark.or_else(|| words.into_iter().find(|(word, _)| cgroup.contains(word)).map(|(_, name)| name))
}

/// Returns display controllers (class 03) and processing accelerators (class 12).
fn cards(bus: &Path) -> Vec<Card> {
    let mut cards: Vec<Card> =
        fs::read_dir(bus).into_iter().flatten().flatten().filter_map(|entry| card(&entry.path())).collect();
    cards.sort_by(|a, b| a.address.cmp(&b.address));
    cards
}

fn card(folder: &Path) -> Option<Card> {
    let number = |file: &str| {
        let text = fs::read_to_string(folder.join(file)).ok()?;
        u32::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok()
    };
    let class = number("class")? >> 16;
    let name = |path: PathBuf| path.file_name().map(|name| name.to_string_lossy().into_owned());
    (class == 0x03 || class == 0x12).then_some(())?;
    Some(Card {
        address: name(folder.to_path_buf())?,
        vendor: number("vendor")? as u16,
        device: number("device")? as u16,
        driver: fs::read_link(folder.join("driver")).ok().and_then(name),
    })
}

fn nodes(root: &Path) -> Vec<Node> {
    let in_folder = |folder: &'static str, wanted: fn(&str) -> bool| {
        let entries = fs::read_dir(root.join(folder)).into_iter().flatten().flatten();
        entries.filter_map(move |entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            wanted(&name).then(|| format!("{folder}/{name}"))
        })
    };
    let is_node = |name: &str| name == "kfd" || name == "dxg" || name.starts_with("nvidia") && name != "nvidia-caps";
    let is_render = |name: &str| name.starts_with("renderD");
    let mut paths: Vec<String> = in_folder("dev", is_node).chain(in_folder("dev/dri", is_render)).collect();
    paths.sort();
    let allowed = |path: &String| {
        let opened = OpenOptions::new().read(true).write(true).open(root.join(path));
        opened.map_or_else(|error| error.kind() != ErrorKind::PermissionDenied, |_| true)
    };
    paths.into_iter().map(|path| Node { allowed: allowed(&path), path: format!("/{path}") }).collect()
}

fn loaded(maps: &str) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = maps
        .lines()
        .filter_map(|line| line.find('/').map(|at| &line[at..]))
        .filter(|path| path.contains(".so"))
        .map(PathBuf::from)
        .collect();
    paths.dedup();
    paths
}

#[cfg(test)]
pub mod tests;
