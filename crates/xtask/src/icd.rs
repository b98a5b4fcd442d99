//! Folders of `.icd` files, one per choice of OpenCL drivers, for `OCL_ICD_VENDORS`.
//!
//! | folder | drivers |
//! |---|---|
//! | `.tools/icd` | all the machine registers (PoCL, a GPU's own) and Intel's CPU runtime |
//! | `.tools/icd-pocl` | PoCL alone |
//! | `.tools/icd-intel` | Intel's CPU runtime alone |
//! | `.tools/icd-oclgrind` | oclgrind alone: it is too slow to be one device among others |
//!
//! The files are rewritten whenever they differ, because Intel's holds an absolute path and repositories move.

use crate::place::Place;
use std::fs;
use std::path::{Path, PathBuf};

/// Where the system's OpenCL drivers register themselves.
const SYSTEM: &str = "/etc/OpenCL/vendors";

/// An `.icd` file: its name and the library it names.
type Icd = (String, String);

/// The folder with every driver that tests run on.
pub fn all(place: &Place) -> PathBuf {
    place.tools().join("icd")
}

/// The folder with PoCL alone.
pub fn one(place: &Place) -> PathBuf {
    place.tools().join("icd-pocl")
}

/// Intel's library in the virtual environment, if it is there with its undeclared dependency.
pub fn intel(place: &Place) -> Option<PathBuf> {
    let lib = place.venv().join("lib");
    let (driver, needs) = (lib.join("libintelocl.so"), lib.join("libsvml.so"));
    (driver.is_file() && needs.is_file()).then_some(driver)
}

/// PoCL's registration.
pub fn pocl() -> Option<Icd> {
    registered().into_iter().find(|(name, _)| name.contains("pocl"))
}

/// Oclgrind's driver; Debian does not register it.
pub fn oclgrind() -> Option<PathBuf> {
    library("liboclgrind-rt-icd.so")
}

/// The library of this name in the usual places.
pub fn library(name: &str) -> Option<PathBuf> {
    let triple = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    [triple.as_str(), "/usr/lib/oclgrind", "/usr/lib64", "/usr/lib", "/usr/local/lib"]
        .iter()
        .map(|folder| Path::new(folder).join(name))
        .find(|path| path.exists())
}

/// Makes the folders say what the machine has now.
pub fn write(place: &Place) -> Result<(), String> {
    let registered = registered();
    let intel: Option<Icd> = intel(place).map(|path| ("panoply-intel-cpu.icd".into(), path.display().to_string()));
    let oclgrind: Option<Icd> = oclgrind().map(|path| ("oclgrind.icd".into(), path.display().to_string()));
    let folders = [
        ("icd", registered.iter().chain(&intel).cloned().collect()),
        ("icd-pocl", Vec::from_iter(pocl())),
        ("icd-intel", Vec::from_iter(intel)),
        ("icd-oclgrind", Vec::from_iter(oclgrind)),
    ];
    for (name, icds) in folders {
        let folder = place.tools().join(name);
        fill(&folder, &icds).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    Ok(())
}

/// Mesa's Vulkan driver for the CPU, where it registers itself.
pub fn lavapipe() -> Option<PathBuf> {
    let folder = fs::read_dir("/usr/share/vulkan/icd.d").ok()?;
    let named = |file: &PathBuf| file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("lvp_icd"));
    folder.flatten().map(|entry| entry.path()).find(named)
}

/// Chromium's Vulkan driver for the CPU, which no loader finds by itself.
pub fn swiftshader() -> Option<PathBuf> {
    let manifest = Path::new("/usr/lib/chromium/vk_swiftshader_icd.json");
    manifest.is_file().then(|| manifest.to_path_buf())
}

fn registered() -> Vec<Icd> {
    let Ok(folder) = fs::read_dir(SYSTEM) else {
        return Vec::new();
    };
    let mut icds: Vec<Icd> = folder
        .flatten()
        .filter(|entry| entry.path().extension().is_some_and(|extension| extension == "icd"))
        .filter_map(|entry| {
            let text = fs::read_to_string(entry.path()).ok()?;
            Some((entry.file_name().into_string().ok()?, text.trim().to_string()))
        })
        .collect();
    icds.sort();
    icds
}

fn fill(folder: &Path, icds: &[Icd]) -> std::io::Result<()> {
    fs::create_dir_all(folder)?;
    for entry in fs::read_dir(folder)?.flatten() {
        if !icds.iter().any(|(name, _)| entry.file_name() == name.as_str()) {
            fs::remove_file(entry.path())?;
        }
    }
    for (name, library) in icds {
        let (path, text) = (folder.join(name), format!("{library}\n"));
        if fs::read_to_string(&path).ok().as_ref() != Some(&text) {
            fs::write(path, text)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_ends_with_exactly_the_wanted_files() {
        let folder = std::env::temp_dir().join(format!("panoply-xtask-icd-{}", std::process::id()));
        let icd = |name: &str, library: &str| (name.to_string(), library.to_string());
        fill(&folder, &[icd("old.icd", "old.so"), icd("kept.icd", "before.so")]).unwrap();
        fill(&folder, &[icd("kept.icd", "after.so"), icd("new.icd", "new.so")]).unwrap();
        let mut names: Vec<_> = fs::read_dir(&folder).unwrap().flatten().map(|entry| entry.file_name()).collect();
        names.sort();
        assert_eq!(names, ["kept.icd", "new.icd"]);
        assert_eq!(fs::read_to_string(folder.join("kept.icd")).unwrap(), "after.so\n");
        fs::remove_dir_all(folder).unwrap();
    }
}
