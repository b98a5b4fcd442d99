//! Distributed arrays in several processes under every MPI of this machine: this test program again, with `child` as its only test.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use panoply_mesh::{DArray, Layout, Mesh};
use panoply_nn::ProcessGroup;
use panoply_tensor::{DType, Device, Result, Tensor};

use crate::support::mpi::installations;

/// The folder in which a rank writes its results.
const CHILD: &str = "PANOPLY_TEST_MESH_FOLDER";

/// Returns the bits of the results as text.
fn bits(values: &[f32]) -> String {
    values.iter().map(|x| format!("{:08x}", x.to_bits())).collect()
}

/// Returns the elements of a product, a sum and a factor.
fn results(mesh: &Mesh) -> Result<Vec<f32>> {
    let layout = Layout::blocks([5, 5]);
    let a = DArray::uniform(mesh, 3, [23, 23], &layout)?;
    let size = DArray::distribute(mesh, &(Tensor::eye(23, DType::F32) * 23.0), &layout)?;
    let gram = a.matmul(&a.t()?)?.zip(&size, |x, y| x + y)?;
    let parts = [gram.cholesky()?.collect()?, a.sum()?, a.slice((1..20, 3..))?.to(&layout)?.collect()?];
    Ok(parts.iter().map(Tensor::to_vec::<f32>).collect::<Result<Vec<Vec<f32>>>>()?.concat())
}

/// A rank; without a launcher, the process that starts two of them.
#[test]
fn child() {
    let Some(folder) = std::env::var_os(CHILD).map(PathBuf::from) else { return };
    Device::get("cpu").unwrap().scope(|| {
        let mesh = Mesh::launch_ranks(2).unwrap();
        let group = mesh.group().expect("a launcher started several processes");
        let name = format!("{} of {}", group.rank(), group.ranks());
        std::fs::write(folder.join(name), bits(&results(&mesh).unwrap())).unwrap();
        group.close().unwrap();
    });
}

#[test]
fn processes_compute_the_bits_of_one_process() {
    if !cfg!(feature = "mpi") {
        println!("SKIPPED: arrays in several processes: built without the feature `mpi`");
        return;
    }
    let expected = Device::get("cpu").unwrap().scope(|| bits(&results(&Mesh::open().unwrap()).unwrap()));
    let own = std::env::current_exe().unwrap();
    let child = ["processes::child", "--exact"];
    for installation in installations("arrays in several processes") {
        for ranks in [2, 4] {
            let mut command = installation.command(ranks);
            command.arg(&own).args(child);
            check(&mut command, ranks, &expected, installation.name);
        }
        // The program starts the launcher itself.
        let mut command = Command::new(&own);
        installation.choose(&mut command);
        check(command.args(child), 2, &expected, installation.name);
    }
}

/// Runs a command and compares the results of all ranks.
#[track_caller]
fn check(command: &mut Command, ranks: usize, expected: &str, name: &str) {
    let folder = std::env::temp_dir().join(format!("panoply-mesh-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let output = command.env(CHILD, &folder).env("PANOPLY_THREADS", "1").stdin(Stdio::null()).output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{name}: {stdout}{stderr}");
    for rank in 0..ranks {
        let have = result(&folder, rank, ranks);
        assert!(have == expected, "{name}: rank {rank} of {ranks}: {have}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

fn result(folder: &Path, rank: usize, ranks: usize) -> String {
    std::fs::read_to_string(folder.join(format!("{rank} of {ranks}"))).unwrap()
}
