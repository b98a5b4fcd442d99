//! A matrix product and a Cholesky factorization of distributed arrays, compared with plain tensors. Runs in one process, or in
//! several under MPI: `mpirun -n 4 target/release/examples/09_distributed_arrays`.

use panoply::mesh::{DArray, Layout, Mesh};
use panoply::nn::ProcessGroup;
use panoply::{DType, Result, Tensor};

/// Runs the example.
pub fn main() -> Result<()> {
    let mesh = Mesh::open()?;
    let size = 300;
    let layout = Layout::blocks([100, 100]);
    let a = DArray::uniform(&mesh, 1, [size, size], &layout)?;
    let product = a.matmul(&a.t()?)?;
    let diagonal = DArray::distribute(&mesh, &(Tensor::eye(size, DType::F32) * size as f64), &layout)?;
    let matrix = product.zip(&diagonal, |x, y| x + y)?;
    let factor = matrix.cholesky()?;

    let (a, product, matrix, factor) = (a.collect()?, product.collect()?, matrix.collect()?, factor.collect()?);
    let largest = |difference: Tensor| difference.abs().max(..).item::<f64>();
    let errors = [largest(product - a.matmul(&a.t()))?, largest(factor.matmul(&factor.t()) - matrix)?];
    let rank = mesh.group().map_or(0, ProcessGroup::rank);
    println!("rank {rank}: errors of the product and of the factorization {:.1e} and {:.1e}", errors[0], errors[1]);
    assert!(errors.iter().all(|error| *error < 1e-2), "{errors:?}");
    mesh.group().map_or(Ok(()), |group| group.close())
}
