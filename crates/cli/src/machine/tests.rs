//! Fake machines in a temporary folder.

use panoply::internal::library_search::Flaw;

use super::*;

/// A temporary root folder, removed when dropped.
pub struct Root(PathBuf);

impl Root {
    /// Creates an empty machine.
    pub fn new(name: &str) -> Root {
        let folder = std::env::temp_dir().join(format!("panoply-machine-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        Root(folder)
    }

    /// Writes a file.
    pub fn file(&self, path: &str, content: impl AsRef<[u8]>) -> &Root {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        self
    }

    /// Adds a device to the PCI bus.
    pub fn device(&self, address: &str, class: &str, vendor: &str, driver: Option<&str>) -> &Root {
        let folder = format!("sys/bus/pci/devices/{address}");
        self.file(&format!("{folder}/class"), class).file(&format!("{folder}/vendor"), vendor);
        self.file(&format!("{folder}/device"), "0x2330\n");
        #[cfg(unix)]
        if let Some(driver) = driver {
            std::os::unix::fs::symlink(format!("../../drivers/{driver}"), self.0.join(folder).join("driver")).unwrap();
        }
        self
    }

    /// Writes the ELF header of a library for an architecture (`EM_X86_64` is 62, `EM_AARCH64` 183).
    pub fn library(&self, path: &str, machine: u16) -> &Root {
        let mut head = [0; 64];
        head[..5].copy_from_slice(b"\x7fELF\x02");
        head[18..20].copy_from_slice(&machine.to_le_bytes());
        self.file(path, head)
    }

    /// Returns the folder.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Reads the machine in this folder.
    pub fn machine(&self) -> Machine {
        Machine::read(&self.0, self.0.join("searched").as_os_str())
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// ELF machine number of the architecture this test runs on.
pub const THIS_MACHINE: u16 = if cfg!(target_arch = "x86_64") { 62 } else { 183 };

#[test]
fn empty_machine_has_no_cards() {
    let machine = Root::new("empty").machine();
    assert!(machine.cards.is_empty() && machine.nodes.is_empty() && machine.loaded.is_empty());
    assert_eq!((machine.container, machine.wsl, machine.nvidia_module.clone()), (None, false, None));
    assert_eq!(machine.library("libcuda.so.1"), None);
}

#[cfg(unix)]
#[test]
fn cards_nodes_and_versions_are_read() {
    let root = Root::new("cards");
    root.device("0000:01:00.0", "0x030200\n", "0x10de\n", Some("nvidia"));
    root.device("0000:02:00.0", "0x120000\n", "0x1002\n", None);
    root.device("0000:00:1f.0", "0x060100\n", "0x8086\n", Some("lpc_ich"));
    root.file("proc/version", "Linux version 6.1.0-18-amd64 (debian)").file("proc/1/cgroup", "0::/kubepods/pod1\n");
    root.file("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  Thu Feb 22\n");
    root.file("dev/nvidia0", "")
        .file("dev/kfd", "")
        .file("dev/dri/renderD128", "")
        .file("dev/dri/card0", "")
        .file("dev/null", "");
    let machine = root.machine();
    let card = |at: usize| {
        (machine.cards[at].address.as_str(), machine.cards[at].maker(), machine.cards[at].driver.as_deref())
    };
    assert_eq!(machine.cards.len(), 2, "a bridge is not a card");
    assert_eq!(card(0), ("0000:01:00.0", "NVIDIA", Some("nvidia")));
    assert_eq!(card(1), ("0000:02:00.0", "AMD", None));
    assert_eq!(machine.nvidia_module.as_deref(), Some("550.54.14"));
    assert_eq!(machine.container, Some("Kubernetes"));
    assert!(machine.system.starts_with("Linux 6.1.0-18-amd64"), "{}", machine.system);
    let nodes: Vec<&str> = machine.nodes.iter().map(|node| node.path.as_str()).collect();
    assert_eq!(nodes, ["/dev/dri/renderD128", "/dev/kfd", "/dev/nvidia0"]);
}

/// On Linux not even root can write the file behind this node.
#[cfg(target_os = "linux")]
#[test]
fn node_without_permission_is_marked() {
    use super::super::diagnosis::diagnose;
    use panoply::runtime::Backend;
    const FORBIDDEN: &str = "/sys/devices/system/cpu/online";
    let denied = OpenOptions::new().read(true).write(true).open(FORBIDDEN);
    if denied.as_ref().map_err(std::io::Error::kind).err() != Some(ErrorKind::PermissionDenied) {
        println!("SKIPPED: a node without permission: this system has no file that root cannot write: {denied:?}");
        return;
    }
    let root = Root::new("forbidden");
    root.file("dev/nvidiactl", "").device("0000:01:00.0", "0x030200\n", "0x10de\n", Some("nvidia"));
    std::os::unix::fs::symlink(FORBIDDEN, root.path().join("dev/nvidia0")).unwrap();
    let machine = root.machine();
    let nodes: Vec<(&str, bool)> = machine.nodes.iter().map(|node| (node.path.as_str(), node.allowed)).collect();
    assert_eq!(nodes, [("/dev/nvidia0", false), ("/dev/nvidiactl", true)]);
    let diagnosis = diagnose(Backend::Cuda, &machine).unwrap();
    assert_eq!(diagnosis.problem, "/dev/nvidia0 cannot be opened by this user");
    assert!(diagnosis.fix.contains("join the group that owns it"), "{}", diagnosis.fix);
}

#[test]
fn library_is_the_loaded_one_or_the_first_on_the_search_path() {
    let root = Root::new("libraries");
    root.library("usr/lib64/libcuda.so.1", THIS_MACHINE);
    assert_eq!(root.machine().library("libcuda.so.1").unwrap().flaw, None);
    root.library("searched/libcuda.so.1", 3);
    let found = root.machine().library("libcuda.so.1").unwrap();
    assert!(found.path.ends_with("usr/lib64/libcuda.so.1"), "a library that cannot be loaded is skipped");
    fs::remove_file(root.path().join("usr/lib64/libcuda.so.1")).unwrap();
    let found = root.machine().library("libcuda.so.1").unwrap();
    assert!(found.path.ends_with("searched/libcuda.so.1"));
    assert_eq!(found.flaw, Some(Flaw::Architecture));
    root.file("searched/libcuda.so.1", "not a library, but long enough to be one");
    assert_eq!(root.machine().library("libcuda.so.1").unwrap().flaw, Some(Flaw::NoLibrary));
    root.file(
        "proc/self/maps",
        "7f00-7f01 r-xp 00000000 08:01 12  /opt/libcuda.so.550.54.14\n7f02-7f03 rw-p 0 0 0  [heap]\n",
    );
    let loaded = Library { path: "/opt/libcuda.so.550.54.14".into(), flaw: None };
    assert_eq!(root.machine().library("libcuda.so.1"), Some(loaded));
    assert_eq!(root.machine().library("libcudart.so.12"), None, "another library with a longer name");
}
