//! What the operating system shows of graphics cards and their drivers, before any driver is asked.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use panoply::internal::library_search::{self, Library};

/// A machine as its operating system shows it. On other systems than Linux nothing is known.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// Kernel and architecture.
    pub system: String,
    /// The kind of container this is, if it is one.
    pub container: Option<&'static str>,
    /// Whether this is Linux under Windows, where cards are not on a bus.
    pub wsl: bool,
    /// Whether the PCI bus could be looked at.
    pub bus: bool,
    /// Graphics cards and accelerators on it.
    pub cards: Vec<Card>,
    /// What programs open to reach a card.
    pub nodes: Vec<Node>,
    /// The version of NVIDIA's kernel module, if it is loaded.
    pub nvidia_module: Option<String>,
    /// Libraries that this process has loaded.
    pub loaded: Vec<PathBuf>,
    folders: Vec<PathBuf>,
}

/// A graphics card or accelerator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// Where on the bus.
    pub address: String,
    /// The vendor's PCI number.
    pub vendor: u16,
    /// The device's.
    pub device: u16,
    /// The kernel driver that has it.
    pub driver: Option<String>,
}

/// A device node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its path.
    pub path: String,
    /// Whether this user may open it.
    pub allowed: bool,
}

impl Card {
    /// Who made it.
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
    /// The machine whose root folder this is; `/` but in tests.
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

    /// A library of this name (`libcuda.so.1`) among those loaded, else where the loader would find it.
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

    /// Cards of a vendor.
    pub fn cards_of(&self, vendor: u16) -> impl Iterator<Item = &Card> {
        self.cards.iter().filter(move |card| card.vendor == vendor)
    }

    /// Nodes whose paths begin so.
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

/// Display controllers (class 03) and processing accelerators (class 12).
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
