//! Image folders: one sub-folder for each class, with BMP, GIF, JPEG, PNG, TIFF and WebP files in it and its sub-folders.
//!
//! EXIF orientation is applied. Samples of 8 and 16 bits are scaled to 0 ..= 1. Transparency is a separate channel if a training image has
//! any; a network without that channel sees images over white.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use image::{DynamicImage, ImageDecoder, ImageReader, Limits};
use panoply_tensor::{Error, Result};

use super::{ReadBudget, ReadProgress};

/// Images as rows of numbers in 0 ..= 1, channel by channel.
#[derive(Clone, Debug, PartialEq)]
pub struct Images {
    /// Rows of all images.
    pub features: Vec<f32>,
    /// Number of channels: 1 for gray and 3 for RGB; 2 and 4 with alpha.
    pub channels: usize,
    /// Height and width.
    pub size: (usize, usize),
}

/// File name extensions of the supported formats.
const ENDINGS: [&str; 8] = ["bmp", "gif", "jpeg", "jpg", "png", "tif", "tiff", "webp"];

/// Maximum nesting of folders: a link to a parent folder would recurse without end.
const MAX_DEPTH: usize = 16;

/// Folder names of data set splits, which are not classes.
const PARTS: [&str; 7] = ["train", "training", "val", "valid", "validation", "test", "testing"];

/// Image files with their classes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageFolder {
    /// Names of the classes, sorted.
    pub classes: Vec<String>,
    /// Files of the first class, sorted, then of the next.
    pub files: Vec<PathBuf>,
    /// Class of each file.
    pub labels: Vec<i32>,
    /// Files in these folders that are not images.
    pub skipped: Vec<PathBuf>,
}

/// Lists the images of a folder with a sub-folder for each class. Nested folders belong to the class of the outer one.
///
/// # Errors
/// If a folder cannot be read, a class has no images, or the sub-folders are splits of a data set.
pub fn scan(folder: &Path) -> Result<ImageFolder> {
    let mut found = ImageFolder::default();
    let (folders, beside): (Vec<PathBuf>, Vec<PathBuf>) = entries(folder)?.into_iter().partition(|path| path.is_dir());
    are_classes(folder, &folders)?;
    found.skipped.extend(beside);
    for class in folders {
        let mut images = Vec::new();
        collect(&class, 1, &mut images, &mut found.skipped)?;
        if images.is_empty() {
            let message = format!("{}: it holds no image ({})", class.display(), ENDINGS.join(", "));
            return Err(Error::mistake(message));
        }
        found.labels.extend(images.iter().map(|_| found.classes.len() as i32));
        found.classes.push(name(&class));
        found.files.extend(images);
    }
    if found.classes.is_empty() {
        let message = format!("{}: no sub-folder contains images", folder.display());
        return Err(Error::mistake(message).note("each class is a sub-folder: FOLDER/cat/1.png, FOLDER/dog/1.png"));
    }
    Ok(found)
}

/// Fails if the sub-folders are splits of a data set, whose names would be used as classes.
fn are_classes(folder: &Path, folders: &[PathBuf]) -> Result<()> {
    let is_part = |path: &PathBuf| PARTS.contains(&name(path).to_lowercase().as_str());
    let nested = |path: &PathBuf| entries(path).is_ok_and(|inner| inner.iter().any(|path| path.is_dir()));
    if folders.is_empty() || !folders.iter().all(|path| is_part(path) && nested(path)) {
        return Ok(());
    }
    let names: Vec<String> = folders.iter().map(|path| name(path)).collect();
    let train = folders.iter().find(|path| name(path).to_lowercase().starts_with("train")).unwrap_or(&folders[0]);
    let message =
        format!("{}: its folders {} are splits of a data set, not classes", folder.display(), names.join(", "));
    Err(Error::mistake(message).note(format!("use one of them: `panoply train {}`", train.display())))
}

/// The parts of a folder that is divided into a training set and others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitFolder {
    /// The training set.
    pub train: PathBuf,
    /// The validation set.
    pub val: Option<PathBuf>,
    /// The test set.
    pub test: Option<PathBuf>,
}

impl SplitFolder {
    /// The parts of `folder` if it has a sub-folder called `train` or `training` beside one for validation (`val`, `valid`,
    /// `validation`) or testing (`test`, `testing`), each with classes in it; otherwise `None`.
    pub fn of(folder: &Path) -> Option<SplitFolder> {
        let folders: Vec<PathBuf> = entries(folder).ok()?.into_iter().filter(|path| path.is_dir()).collect();
        let part = |names: &[&str]| {
            let is_part = |path: &&PathBuf| names.contains(&name(path).to_lowercase().as_str());
            let has_classes = |path: &&PathBuf| entries(path).is_ok_and(|inner| inner.iter().any(|path| path.is_dir()));
            folders.iter().find(is_part).filter(has_classes).cloned()
        };
        let (val, test) = (part(&["val", "valid", "validation"]), part(&["test", "testing"]));
        let train = part(&["train", "training"]).filter(|_| val.is_some() || test.is_some())?;
        Some(SplitFolder { train, val, test })
    }
}

/// Collects the images of a folder and its sub-folders, and the files that are not images.
fn collect(folder: &Path, depth: usize, images: &mut Vec<PathBuf>, skipped: &mut Vec<PathBuf>) -> Result<()> {
    if depth > MAX_DEPTH {
        let message = format!("{}: folders are nested more than {MAX_DEPTH} deep", folder.display());
        return Err(Error::mistake(message).note("check for links to a parent folder"));
    }
    for path in entries(folder)? {
        match path {
            path if path.is_dir() => collect(&path, depth + 1, images, skipped)?,
            path if is_image(&path) => images.push(path),
            path => skipped.push(path),
        }
    }
    Ok(())
}

/// Returns true for a file with an image extension.
pub(super) fn is_image(path: &Path) -> bool {
    let ending = path.extension().map(|ending| ending.to_string_lossy().to_lowercase());
    path.is_file() && ending.is_some_and(|ending| ENDINGS.contains(&ending.as_str()))
}

/// Returns the images of a folder, sorted, and its other files.
///
/// # Errors
/// If the folder cannot be read.
pub fn list_images(folder: &Path) -> Result<(Vec<PathBuf>, Vec<PathBuf>)> {
    let files = entries(folder)?.into_iter().filter(|path| !path.is_dir());
    Ok(files.partition(|path| is_image(path)))
}

/// Returns a message about skipped files, counted by extension; `None` if there are none.
pub(super) fn left_out(folder: &Path, skipped: &[PathBuf]) -> Option<String> {
    let mut endings: BTreeMap<String, usize> = BTreeMap::new();
    for file in skipped {
        let ending =
            file.extension().map_or("no ending".to_string(), |ending| format!(".{}", ending.to_string_lossy()));
        *endings.entry(ending.to_lowercase()).or_default() += 1;
    }
    let mut counts: Vec<(String, usize)> = endings.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let shown: Vec<String> =
        counts.iter().take(ENDINGS_SHOWN).map(|(ending, count)| format!("{count} {ending}")).collect();
    let more = if counts.len() > ENDINGS_SHOWN { ", …" } else { "" };
    let what = format!("{} ({}{more})", counted(skipped.len()), shown.join(", "));
    (!skipped.is_empty()).then(|| {
        format!("{}: {what} skipped: not an image of a supported format ({})", folder.display(), ENDINGS.join(", "))
    })
}

/// Number of extensions in a message.
const ENDINGS_SHOWN: usize = 6;

fn counted(files: usize) -> String {
    if files == 1 { "1 file".to_string() } else { format!("{files} files") }
}

/// Reads images. They are resized to `size` if given, otherwise all must have the same size. `channels` is as in [`Images::channels`]; by
/// default it depends on the files.
///
/// # Errors
/// If a file cannot be read, or the sizes differ.
pub fn load(files: &[PathBuf], size: Option<(usize, usize)>, channels: Option<usize>) -> Result<Images> {
    load_reporting(files, size, channels, &ReadProgress::default())
}

/// [`load`] that reports its progress.
pub(super) fn load_reporting(
    files: &[PathBuf],
    size: Option<(usize, usize)>,
    channels: Option<usize>,
    progress: &ReadProgress,
) -> Result<Images> {
    let on_disk = |file: &PathBuf| std::fs::metadata(file).map_or(0, |file| file.len());
    let budget = ReadBudget::for_size(files.iter().map(on_disk).sum())?;
    let mut images = Vec::with_capacity(files.len());
    let step = progress.steps(files.len(), (0.0, 1.0));
    for file in files {
        images.push(decoded(file, size, &budget)?);
        step();
    }
    drop(step);
    let Some(first) = images.first() else { return Err(Error::mistake("no images to read")) };
    let own = (first.height() as usize, first.width() as usize);
    if let Some(at) = images.iter().position(|image| (image.height() as usize, image.width() as usize) != own) {
        let message = format!(
            "{} has {} × {} pixels, not {} × {} as {}",
            files[at].display(),
            images[at].height(),
            images[at].width(),
            own.0,
            own.1,
            files[0].display()
        );
        return Err(Error::mistake(message).note("use `--image-size ROWSxCOLUMNS` to resize all images"));
    }
    let colored = images.iter().any(|image| image.color().has_color());
    let alpha = || images.iter().any(is_transparent);
    let channels = channels.unwrap_or_else(|| if colored { 3 } else { 1 } + usize::from(alpha()));
    let count = images.len().saturating_mul(own.0.saturating_mul(own.1)).saturating_mul(channels);
    budget.take_values(count, size_of::<f32>(), &files[0]).map_err(|error| smaller(error, images.len(), own))?;
    // One image in f32.
    budget.take_values(own.0.saturating_mul(own.1), 4 * size_of::<f32>(), &files[0])?;
    let mut features = Vec::with_capacity(images.len() * own.0 * own.1 * channels);
    for image in &images {
        append(image, channels, &mut features);
    }
    Ok(Images { features, channels, size: own })
}

/// Decodes an image, applies its EXIF orientation and resizes it. Its bytes are reserved in the budget before decoding.
fn decoded(file: &Path, size: Option<(usize, usize)>, budget: &ReadBudget) -> Result<DynamicImage> {
    let failed = |error| Error::io(format!("cannot read {}", file.display()), error);
    let wrong = |error: image::ImageError| Error::corrupt(format!("{}: {error}", file.display())).with_source(error);
    let reader = ImageReader::open(file).and_then(|reader| reader.with_guessed_format()).map_err(failed)?;
    let mut decoder = reader.into_decoder().map_err(wrong)?;
    // The decoder's own limits apply: half a gigabyte for an image.
    let (mut limits, bytes) = (Limits::default(), decoder.total_bytes());
    limits.reserve(bytes).map_err(wrong)?;
    decoder.set_limits(limits).map_err(wrong)?;
    let (columns, rows) = decoder.dimensions();
    budget.take(bytes, file).map_err(|error| smaller(error, 1, (rows as usize, columns as usize)))?;
    let orientation = decoder.orientation().map_err(wrong)?;
    let mut image = DynamicImage::from_decoder(decoder).map_err(wrong)?;
    image.apply_orientation(orientation);
    let own = (image.height() as usize, image.width() as usize);
    let Some((rows, columns)) = size.filter(|size| *size != own) else { return Ok(image) };
    let points = (rows as u64).saturating_mul(columns as u64);
    budget.take(points.saturating_mul(image.color().bytes_per_pixel().into()), file)?;
    let scaled = scaled(image, size);
    budget.give_back(bytes);
    Ok(scaled)
}

/// Adds a note to an error about a budget that is too small for the images.
fn smaller(error: Error, count: usize, (rows, columns): (usize, usize)) -> Error {
    error.note(format!("or reduce the {count} images of {rows} × {columns} pixels with `--image-size ROWSxCOLUMNS`"))
}

/// Returns true if a pixel is not fully opaque.
fn is_transparent(image: &DynamicImage) -> bool {
    image.color().has_alpha() && image.to_luma_alpha32f().pixels().any(|point| point[1] < 1.0)
}

/// Appends the channels of an image: its colors with alpha, or its colors over white.
fn append(image: &DynamicImage, channels: usize, features: &mut Vec<f32>) {
    let over_white = |color: f32, alpha: f32| if alpha < 1.0 { color * alpha + (1.0 - alpha) } else { color };
    match channels {
        1 | 2 => {
            let points = image.to_luma_alpha32f();
            let color = |point: &image::LumaA<f32>| match channels {
                1 => over_white(point[0], point[1]),
                _ => point[0],
            };
            features.extend(points.pixels().map(color));
            if channels == 2 {
                features.extend(points.pixels().map(|point| point[1]));
            }
        }
        _ => {
            let points = image.to_rgba32f();
            for plane in 0..channels {
                features.extend(points.pixels().map(|point| match channels {
                    3 => over_white(point[plane], point[3]),
                    _ => point[plane],
                }));
            }
        }
    }
}

fn scaled(image: DynamicImage, size: Option<(usize, usize)>) -> DynamicImage {
    match size {
        Some((rows, columns)) if (image.height() as usize, image.width() as usize) != (rows, columns) => {
            image.resize_exact(columns as u32, rows as u32, image::imageops::FilterType::Triangle)
        }
        _ => image,
    }
}

/// Returns the entries of a folder, sorted, without hidden files.
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

/// Returns the last component of a path.
fn name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}
