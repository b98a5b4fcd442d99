//! Folders of `.icd` files, one per selection of OpenCL drivers, for `OCL_ICD_VENDORS`.
//!
//! | folder | drivers |
//! |---|---|
//! | `.tools/icd` | all registered drivers (PoCL, those of GPUs) and Intel's CPU runtime |
//! | `.tools/icd-pocl` | only PoCL |
//! | `.tools/icd-intel` | only Intel's CPU runtime |
//! | `.tools/icd-oclgrind` | only oclgrind, which is too slow to run with the others |
//!
//! Files are rewritten if they differ, since Intel's contains an absolute path and the repository can move.

use crate::repo::Repo;
use std::fs;
use std::path::{Path, PathBuf};

/// Folder in which the system's OpenCL drivers are registered.
const SYSTEM: &str = "/etc/OpenCL/vendors";

/// Name and library of an `.icd` file.
type Icd = (String, String);

/// Returns the folder with every driver that tests run on.
pub fn all(repo: &Repo) -> PathBuf {
    repo.tools().join("icd")
}

/// Returns the folder with only PoCL.
pub fn one(repo: &Repo) -> PathBuf {
    repo.tools().join("icd-pocl")
}

/// Returns Intel's library in the virtual environment, if it and its undeclared dependency are installed.
pub fn intel(repo: &Repo) -> Option<PathBuf> {
    let lib = repo.venv().join("lib");
    let (driver, needs) = (lib.join("libintelocl.so"), lib.join("libsvml.so"));
    (driver.is_file() && needs.is_file()).then_some(driver)
}

/// Returns the registration of PoCL.
pub fn pocl() -> Option<Icd> {
    registered().into_iter().find(|(name, _)| name.contains("pocl"))
}

/// Returns the driver of oclgrind, which Debian does not register.
pub fn oclgrind() -> Option<PathBuf> {
    library("liboclgrind-rt-icd.so")
}

/// Returns the library of this name in the usual folders.
pub fn library(name: &str) -> Option<PathBuf> {
    let triple = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    [triple.as_str(), "/usr/lib/oclgrind", "/usr/lib64", "/usr/lib", "/usr/local/lib"]
        .iter()
        .map(|folder| Path::new(folder).join(name))
        .find(|path| path.exists())
}

/// Updates the folders to the installed drivers.
pub fn write(repo: &Repo) -> Result<(), String> {
    let registered = registered();
    let intel: Option<Icd> = intel(repo).map(|path| ("panoply-intel-cpu.icd".into(), path.display().to_string()));
    let oclgrind: Option<Icd> = oclgrind().map(|path| ("oclgrind.icd".into(), path.display().to_string()));
    let folders = [
        ("icd", registered.iter().chain(&intel).cloned().collect()),
        ("icd-pocl", Vec::from_iter(pocl())),
        ("icd-intel", Vec::from_iter(intel)),
        ("icd-oclgrind", Vec::from_iter(oclgrind)),
    ];
    for (name, icds) in folders {
        let folder = repo.tools().join(name);
        fill(&folder, &icds).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    Ok(())
}

/// Returns Mesa's Vulkan driver for the CPU, if registered.
pub fn lavapipe() -> Option<PathBuf> {
    let folder = fs::read_dir("/usr/share/vulkan/icd.d").ok()?;
    let named = |file: &PathBuf| file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("lvp_icd"));
    folder.flatten().map(|entry| entry.path()).find(named)
}

/// Returns Chromium's Vulkan driver for the CPU, which is not registered with the loader.
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
    fn folder_contains_exactly_the_given_files() {
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
