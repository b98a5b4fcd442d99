//! Folders of images: one sub-folder for each class, PNG and JPEG files in it.

use std::path::{Path, PathBuf};

use image::{DynamicImage, ImageDecoder, ImageReader, Limits};
use panoply_tensor::{Error, Result};

use super::ReadBudget;

/// Images as rows of numbers in 0 ..= 1: all of one colour plane, then the next.
#[derive(Clone, Debug, PartialEq)]
pub struct Images {
    /// One row for each image, one after another.
    pub features: Vec<f32>,
    /// 1 if all are grey, otherwise 3: red, green, blue.
    pub channels: usize,
    /// Rows and columns of each.
    pub size: (usize, usize),
}

/// Files with a class each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Classified {
    /// Names of the classes, sorted.
    pub classes: Vec<String>,
    /// The files of the first class, sorted, then of the next.
    pub files: Vec<PathBuf>,
    /// The class of each file.
    pub labels: Vec<i32>,
}

/// The files of a folder with a sub-folder for each class.
pub fn classes(folder: &Path) -> Result<Classified> {
    let mut found = Classified::default();
    for class in entries(folder)?.into_iter().filter(|path| path.is_dir()) {
        let images = files_in(&class)?;
        if images.is_empty() {
            return Err(Error::mistake(format!("{}: there is no PNG or JPEG file in it", class.display())));
        }
        found.labels.extend(images.iter().map(|_| found.classes.len() as i32));
        found.classes.push(name(&class));
        found.files.extend(images);
    }
    if found.classes.is_empty() {
        let message = format!("{}: there is no sub-folder with images in it", folder.display());
        return Err(Error::mistake(message).note("each class is a sub-folder: FOLDER/cat/1.png, FOLDER/dog/1.png"));
    }
    Ok(found)
}

/// The PNG and JPEG files of a folder, sorted.
pub fn files_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let is_image = |path: &PathBuf| {
        let ending = path.extension().map(|ending| ending.to_string_lossy().to_lowercase());
        path.is_file() && matches!(ending.as_deref(), Some("png" | "jpg" | "jpeg"))
    };
    Ok(entries(folder)?.into_iter().filter(is_image).collect())
}

/// Reads files. All are scaled to `size` if one is given and must be of one size otherwise; `channels` 1 or 3 makes them grey
/// or coloured, none leaves it to the files.
pub fn load(files: &[PathBuf], size: Option<(usize, usize)>, channels: Option<usize>) -> Result<Images> {
    let on_disk = |file: &PathBuf| std::fs::metadata(file).map_or(0, |file| file.len());
    let budget = ReadBudget::for_size(files.iter().map(on_disk).sum())?;
    let mut images = Vec::with_capacity(files.len());
    for file in files {
        images.push(decoded(file, size, &budget)?);
    }
    let Some(first) = images.first() else { return Err(Error::mistake("there are no images to read")) };
    let own = (first.height() as usize, first.width() as usize);
    if let Some(at) = images.iter().position(|image| (image.height() as usize, image.width() as usize) != own) {
        let message = format!(
            "{} has {} × {} points, not {} × {} as {}",
            files[at].display(),
            images[at].height(),
            images[at].width(),
            own.0,
            own.1,
            files[0].display()
        );
        return Err(Error::mistake(message).note("`--image-size ROWSxCOLUMNS` scales all of them"));
    }
    let coloured = images.iter().any(|image| image.color().has_color());
    let channels = channels.unwrap_or(if coloured { 3 } else { 1 });
    let count = images.len().saturating_mul(own.0.saturating_mul(own.1)).saturating_mul(channels);
    budget.take_values(count, size_of::<f32>(), &files[0]).map_err(|error| smaller(error, images.len(), own))?;
    let mut features = Vec::with_capacity(images.len() * own.0 * own.1 * channels);
    for image in &images {
        if channels == 1 {
            features.extend(image.to_luma8().pixels().map(|point| f32::from(point[0]) / 255.0));
        } else {
            let points = image.to_rgb8();
            (0..3).for_each(|c| features.extend(points.pixels().map(|point| f32::from(point[c]) / 255.0)));
        }
    }
    Ok(Images { features, channels, size: own })
}

/// The image of a file, scaled to this size if there is one. Its bytes are counted before they are decoded, and kept counted as long as
/// it is kept.
fn decoded(file: &Path, size: Option<(usize, usize)>, budget: &ReadBudget) -> Result<DynamicImage> {
    let failed = |error| Error::io(format!("cannot read {}", file.display()), error);
    let wrong = |error: image::ImageError| Error::corrupt(format!("{}: {error}", file.display())).caused_by(error);
    let reader = ImageReader::open(file).and_then(|reader| reader.with_guessed_format()).map_err(failed)?;
    let mut decoder = reader.into_decoder().map_err(wrong)?;
    // The decoder's own limits stand: half a gigabyte for an image.
    let (mut limits, bytes) = (Limits::default(), decoder.total_bytes());
    limits.reserve(bytes).map_err(wrong)?;
    decoder.set_limits(limits).map_err(wrong)?;
    let (columns, rows) = decoder.dimensions();
    let own = (rows as usize, columns as usize);
    budget.take(bytes, file).map_err(|error| smaller(error, 1, own))?;
    let image = DynamicImage::from_decoder(decoder).map_err(wrong)?;
    let Some((rows, columns)) = size.filter(|size| *size != own) else { return Ok(image) };
    let points = (rows as u64).saturating_mul(columns as u64);
    budget.take(points.saturating_mul(image.color().bytes_per_pixel().into()), file)?;
    let scaled = scaled(image, size);
    budget.give_back(bytes);
    Ok(scaled)
}

/// The images do not fit into the budget; smaller ones may.
fn smaller(error: Error, count: usize, (rows, columns): (usize, usize)) -> Error {
    error.note(format!("or `--image-size ROWSxCOLUMNS` makes images of {rows} × {columns} ({count} here) smaller"))
}

fn scaled(image: DynamicImage, size: Option<(usize, usize)>) -> DynamicImage {
    match size {
        Some((rows, columns)) if (image.height() as usize, image.width() as usize) != (rows, columns) => {
            image.resize_exact(columns as u32, rows as u32, image::imageops::FilterType::Triangle)
        }
        _ => image,
    }
}

/// What a folder holds, sorted, without hidden files.
fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let failed = |error| Error::io(format!("cannot read {}", folder.display()), error);
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if !name(&path).starts_with('.') {
            entries.push(path);
        }
    }
    entries.sort();
    Ok(entries)
}

/// The last part of a path.
fn name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}
