"""Folders and tables as people have them: read as parts and classes, or refused by name."""

import csv
import io
import json
import os
import shutil

import pytest
from PIL import Image

from tests.data.image_files.pictures import encode
from towers.data.image_files.image_files import open_image_files
from towers.data.image_files.listing import USUAL_READING, Reading


def write(folder, *paths):
    """Writes a picture of its own to each path, and text to others."""
    for number, path in enumerate(paths):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        if path.endswith((".png", ".jpg")):
            kind = "PNG" if path.endswith("png") else "JPEG"
            picture = Image.new("RGB", (8, 8), (number * 37 % 256, number * 91 % 256, number))
            picture.putpixel((0, 0), (255, 255, 255))
            content = encode(picture, kind)
        else:
            content = b"{}"
        (folder / path).write_bytes(content)
    return folder


def several(*folders):
    """Returns paths of four pictures in each folder."""
    return [f"{folder}/{number}.png" for folder in folders for number in range(4)]


def found(folder, cache, reading=USUAL_READING, **options):
    """Returns the number of pictures of each class in each part, and the summary."""
    files = open_image_files(folder, cache, reading, **options)
    counts = {
        part: {files.class_names[label]: count for label, count in one.counts.items()}
        for part, one in files.parts.items()
    }
    return counts, "\n".join(files.summary)


@pytest.mark.parametrize(
    "train, test",
    [
        ("seg_train/seg_train", "seg_test/seg_test"),
        ("training_set", "test_set"),
        ("train_images", "TestImages"),
        ("archive/Training", "archive/Testing"),
        ("dataset/train/data", "dataset/test/data"),
        ("asl_alphabet_train/asl_alphabet_train", "asl_alphabet_test/asl_alphabet_test"),
        ("Final_Training/Images", "Final_Test/Images"),
    ],
)
def test_parts_are_found_by_their_names_however_deep(train, test, tmp_path):
    folders = [f"{part}/{name}" for part in (train, test) for name in ("cat", "dog")]
    folder = write(tmp_path / "all", *several(*folders))
    counts, summary = found(folder, tmp_path / "cache", validation_share=0)
    assert counts == {part: {"cat": 4, "dog": 4} for part in ("train", "test")}
    assert "train + test: cat 4 + 4, dog 4 + 4" in summary


def test_class_folders_may_have_names_with_words_of_parts(tmp_path):
    for names in (("trains", "testing station", "valid tickets"), ("steam train", "toy train")):
        folder = write(tmp_path / names[0], *several(*names))
        counts, _ = found(folder, tmp_path / "cache", validation_share=0)
        assert set(counts["train"]) == set(names)


def test_a_test_part_without_classes_leaves_a_share_of_train(tmp_path):
    paths = [*several("train/cat", "train/dog"), "test/1.png", "test/2.png"]
    counts, summary = found(write(tmp_path / "all", *paths), tmp_path / "cache")
    assert set(counts) == {"train", "validation"} and all(len(one) == 2 for one in counts.values())
    assert "left out 2 pictures of test/, which are in no class folder" in summary


def test_pictures_in_no_class_folder_of_a_part_are_no_class(tmp_path):
    paths = several("train/n01/images", "train/n02/images", "val/images", "test/images")
    counts, summary = found(write(tmp_path / "all", *paths), tmp_path / "cache")
    assert set(counts) == {"train", "validation"} and set(counts["train"]) == {"n01", "n02"}
    assert "left out 4 pictures of val/, which are in no class folder" in summary


@pytest.mark.parametrize("table", ["metadata.csv", "metadata.jsonl"])
def test_each_part_may_have_a_table(table, tmp_path):
    folder = write(tmp_path / "all", *several("train", "test/images"))
    for part, above in (("train", ""), ("test", "images/")):
        rows = [(f"{above}{number}.png", "cat" if number % 2 else "dog") for number in range(4)]
        lines = [json.dumps({"file_name": file, "label": label}) for file, label in rows]
        if table.endswith("csv"):
            lines = ["file_name,label", *(f"{file},{label}" for file, label in rows)]
        (folder / part / table).write_text("\n".join(lines) + "\n")
    counts, _ = found(folder, tmp_path / "cache", validation_share=0)
    assert counts == {part: {"cat": 2, "dog": 2} for part in ("train", "test")}


def test_pictures_that_cannot_be_decoded_are_counted_by_class(tmp_path):
    folder = write(tmp_path / "all", *several("cat", "dog"))
    for number in range(12):
        (folder / "dog" / f"{number}.heic").write_bytes(b"\0\0\0\x18ftypheic" + 20 * b"\0")
    _, summary = found(folder, tmp_path / "cache")
    assert "left out 12 pictures that cannot be decoded (dog 12):" in summary


def test_files_beside_the_only_folder_make_it_no_class(tmp_path):
    paths = [*several("data/train/cat", "data/train/dog"), "README.md", "dataset_infos.json"]
    counts, _ = found(write(tmp_path / "all", *paths), tmp_path / "cache", validation_share=0)
    assert counts == {"train": {"cat": 4, "dog": 4}}


def test_files_beside_class_folders_are_named(tmp_path):
    folder = write(tmp_path / "all", *several("cat", "dog"), "names.json")
    (folder / "lost").symlink_to(tmp_path / "elsewhere")
    assert f"not used of {folder}: lost, names.json" in found(folder, tmp_path / "cache")[1]
    folder = write(tmp_path / "one", *several("images"), "labels.json")
    with pytest.raises(ValueError, match=r"one: labels\.json\..* a CSV file with the columns path"):
        found(folder, tmp_path / "cache")


def test_the_other_one_of_two_columns_is_the_label(tmp_path):
    folder = write(tmp_path / "all", *several("images"))
    (folder / "labels.csv").write_text("id;breed\n0;cat\n1;dog\n2;cat\n")
    counts, summary = found(folder, tmp_path / "cache", validation_share=0)
    assert counts == {"train": {"cat": 2, "dog": 1}}
    assert "left out 1 picture that labels.csv does not name" in summary


def test_further_formats_are_pictures(tmp_path):
    folder = write(tmp_path / "all", *several("cat", "dog"))
    for suffix, kind in (("ppm", "PPM"), ("pgm", "PPM"), ("tga", "TGA"), ("jp2", "JPEG2000")):
        mode = "L" if suffix == "pgm" else "RGB"
        content = encode(Image.new("RGB", (16, 16), (9, 90, 200)).convert(mode), kind)
        (folder / "cat" / f"own.{suffix}").write_bytes(content)
    counts, _ = found(folder, tmp_path / "cache", validation_share=0)
    assert counts == {"train": {"cat": 8, "dog": 4}}


def test_a_file_with_the_name_of_a_folder_of_boxes_is_none(tmp_path):
    folder = write(tmp_path / "all", *several("train/images", "train/others"), "annotations")
    (folder / "train" / "labels").write_bytes(b"?")
    counts, _ = found(folder, tmp_path / "cache")
    assert set(counts["train"]) == {"images", "others"}


def test_every_class_with_two_pictures_is_in_both_parts(tmp_path):
    paths = [f"{name}/{number}.png" for name in "abcdefgh" for number in range(2)]
    counts, _ = found(write(tmp_path / "all", *paths), tmp_path / "cache", validation_share=0.1)
    assert counts == {part: dict.fromkeys("abcdefgh", 1) for part in ("train", "validation")}


def test_classes_without_pictures_are_named(tmp_path):
    folder = write(tmp_path / "all", *several("train/cat", "train/dog", "val/cat", "val/cow"))
    (folder / "train" / "ant").mkdir()
    counts, summary = found(folder, tmp_path / "cache")
    assert counts["validation"] == {"cat": 4, "cow": 4}
    assert "no picture to train on: cow" in summary
    assert "no picture in the class folder train/ant/" in summary


def test_pictures_beside_class_folders_are_counted(tmp_path):
    folder = write(tmp_path / "all", *several("cat", "dog"), "cover.jpg")
    _, summary = found(folder, tmp_path / "cache")
    assert "left out 1 picture of" in summary and "such as cover.jpg" in summary


def test_folders_in_a_class_folder_are_classes_or_one(tmp_path):
    folder = write(tmp_path / "all", *several("cats", "dogs/poodle", "dogs/terrier"))
    with pytest.raises(ValueError, match=r"dogs holds .* \(poodle, terrier\).*nested=classes"):
        found(folder, tmp_path / "cache")
    for nested, classes in (
        ("classes", {"cats", "dogs/poodle", "dogs/terrier"}),
        ("one", {"cats", "dogs"}),
    ):
        counts, _ = found(folder, tmp_path / "cache", Reading(nested=nested), validation_share=0)
        assert set(counts["train"]) == classes


def test_one_folder_of_a_class_folder_is_that_class(tmp_path):
    folder = write(tmp_path / "all", *several("train/n01/images", "train/n02/images"))
    counts, _ = found(folder, tmp_path / "cache")
    assert set(counts["train"]) == {"n01", "n02"}


@pytest.mark.parametrize(
    "paths, message",
    [
        (["Dataset/train/a/1.png", "Examples/1.png"], r"Give the folder .*--data .*Dataset"),
        (["images/1.png", "labels/1.txt"], r"detection \(YOLO\)"),
        (["images/train/1.png", "data.yaml"], r"detection \(YOLO\)"),
        (["train2017/1.jpg", "annotations/instances.json"], r"detection \(COCO\)"),
        (["JPEGImages/1.jpg", "Annotations/1.xml"], r"detection \(VOC\)"),
        (["train/_annotations.coco.json", "train/1.jpg"], r"detection \(COCO\)"),
        (["train/images/1.jpg", "train/labels/1.txt", "data.yaml"], r"detection \(YOLO\)"),
        (["images/1.png", "masks/1.png"], r"data set of segmentation"),
        (["train/images/1.png", "train/labels/1.png", "val/images/2.png"], r"of segmentation"),
        (["cat/train/1.png", "cat/val/2.png", "dog/train/1.png"], r"move them into the parts"),
        (["cat.1.jpg", "dog.1.jpg", "pictures.zip"], r"It holds 2 \.jpg, 1 \.zip\."),
        (["cars_train/1.jpg", "cars_test/2.jpg", "devkit/a.mat"], r"It holds 2 \.jpg, 1 \.mat\."),
        (
            ["train/train/1.jpg", "test/test/2.jpg"],
            r"no picture in a class folder\. It holds 2 \.jpg",
        ),
    ],
)
def test_other_layouts_are_refused_by_name(paths, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        found(write(tmp_path / "all", *paths), tmp_path / "cache")


def test_the_same_bytes_in_two_classes_or_parts_are_named(tmp_path):
    folder = write(tmp_path / "all", *several("train/cat", "train/dog", "test/cat", "test/dog"))
    shutil.copy(folder / "train/cat/0.png", folder / "train/dog/copy.png")
    shutil.copy(folder / "train/dog/1.png", folder / "test/dog/copy.png")
    _, summary = found(folder, tmp_path / "cache")
    assert "2 pictures in two classes or parts: test/dog/copy.png and train/dog/1.png" in summary


@pytest.mark.parametrize(
    "table, text",
    [
        ("t.csv", "id,label\n{0},cat\n{1},dog\n"),
        ("t.csv", "File Name,class name\n{0},cat\n{1},dog\n"),
        ("t.csv", "filename;class\n{0}.png;cat\n{1}.png;dog\n"),
        ("t.csv", "filename;class;breed\n{0};cat;a, b\n;;\n{1};dog;c, d\n;;\n"),
        ("t.csv", "sep=;\nImage_Path;Category\n{0}.png;cat\n{1}.png;dog\n"),
        ("t.csv", "image,cat,dog\n{0}.png,1,0\n{1}.png,0,1\n"),
        ("t.csv", "img_path,target,breed\npictures\\{0}.png,cat,x\npictures\\{1}.png,dog,y\n"),
        ("t.tsv", "path\tlabel\npictures/{0}.png\tcat\npictures/{1}.png\tdog\n"),
        ("metadata.jsonl", '{{"file_name": "{0}.png", "label": "cat"}}\n'
                           '{{"file_name": "{1}.png", "label": "dog"}}\n'),
    ],
)  # fmt: skip
def test_tables_are_read_as_people_write_them(table, text, tmp_path):
    folder = write(tmp_path / "all", "pictures/11.png", "pictures/22.png")
    (folder / table).write_text(text.format(11, 22))
    files = open_image_files(folder, tmp_path / "cache", validation_share=0)
    (part,) = files.parts.values()
    labels = [files.class_names[label] for (label,) in part.labels]
    assert dict(zip(part.paths, labels, strict=True)) == {
        str(folder / "pictures" / "11.png"): "cat",
        str(folder / "pictures" / "22.png"): "dog",
    }
    assert not files.broken
    if "breed" in text:
        assert "columns of t.csv that are not used: breed" in files.summary


def test_a_column_of_parts_is_found_by_what_it_holds(tmp_path):
    folder = write(tmp_path / "all", *several("x"))
    parts = ("train", "Train", "valid", "TEST")
    rows = "".join(f"{n},{n % 2},{part},{n}\n" for n, part in enumerate(parts))
    (folder / "t.csv").write_text(f"id,label,data set,fold\n{rows}")
    counts, summary = found(folder, tmp_path / "cache")
    assert counts == {"train": {"0": 1, "1": 1}, "validation": {"0": 1}, "test": {"1": 1}}
    assert "columns of t.csv that are not used: fold" in summary
    for name, cell in (("data set", "train"), ("partition", "0")):
        (folder / "t.csv").write_text(f"id,{name}\n0,{cell}\n")
        with pytest.raises(ValueError, match="has to name the columns path and label"):
            found(folder, tmp_path / "cache")


def test_the_first_object_need_not_have_every_key(tmp_path):
    folder = write(tmp_path / "all", "1.png", "2.png", "3.png", "4.png")
    rows = [{"file_name": f"{n}.png", "label": n % 2} for n in (1, 2, 3, 4)]
    rows[2]["split"] = rows[3]["split"] = "test"
    (folder / "metadata.jsonl").write_text("\n".join(map(json.dumps, rows)))
    counts, _ = found(folder, tmp_path / "cache", validation_share=0)
    assert counts == {part: {"0": 1, "1": 1} for part in ("train", "test")}


def test_labels_that_no_two_pictures_share_are_doubted(tmp_path):
    folder = write(tmp_path / "all", *several("x", "y", "z"))
    rows = "".join(f"{one}/{n}.png,{one} {n}\n" for one in "xyz" for n in range(4))
    (folder / "t.csv").write_text(f"file_name,text\n{rows}")
    _, summary = found(folder, tmp_path / "cache")
    assert "12 classes of one picture each: are these the labels to be told apart?" in summary


def test_columns_are_chosen(tmp_path):
    folder = write(tmp_path / "all", "1.png", "2.png")
    (folder / "t.csv").write_text("where,label,what\n1.png,x,cat\n2.png,x,dog\n")
    with pytest.raises(ValueError, match=r"columns=PATH,LABEL\. Received where, label, what"):
        found(folder, tmp_path / "cache")
    counts, _ = found(
        folder, tmp_path / "cache", Reading(columns=("where", "what")), validation_share=0
    )
    assert counts == {"train": {"cat": 1, "dog": 1}}


def test_tags_are_divided_by_blanks_or_bars(tmp_path):
    folder = write(tmp_path / "all", "1.png", "2.png")
    (folder / "t.csv").write_text("image_name,tags\n1,haze primary\n2,primary\n")
    counts, _ = found(folder, tmp_path / "cache", Reading(several_labels=True), validation_share=0)
    assert counts == {"train": {"haze": 1, "primary": 2}}


@pytest.mark.parametrize(
    "table, rows, counts, said",
    [
        ("t.csv", "1.png,red light;green\n2.png,green", {"green": 2, "red light": 1}, "at , and ;"),
        ("t.csv", '1.png,"red light, dog"\n2.png,dog', {"dog": 2, "red light": 1}, "at , and ;"),
        ("t.csv", '1.png,"cat; cow, ox"\n2.png,cat ox', {"cat": 2, "cow": 1, "ox": 2}, "at blanks"),
        ("t.csv", "1.png,red light;x|green\n2.png,green", {"green": 2, "red light;x": 1}, ""),
        ("metadata.jsonl",
         '{"path": "1.png", "label": ["red light"]}\n'
         '{"path": ["2.png"], "label": ["x"], "split": ["train"], "meta": {"w": 1}}',
         {"red light": 1, "x": 1}, ""),
    ],
)  # fmt: skip
def test_labels_keep_their_blanks_where_something_else_divides_them(
    table, rows, counts, said, tmp_path
):
    folder = write(tmp_path / "all", "1.png", "2.png")
    header = "" if table.endswith("jsonl") else "path,labels\n"
    (folder / table).write_text(f"{header}{rows}\n")
    several = Reading(several_labels=True)
    received, summary = found(folder, tmp_path / "cache", several, validation_share=0)
    assert received == {"train": counts}
    assert (f"labels of {table} are divided {said}" in summary) == bool(said)


@pytest.mark.parametrize(
    "table, rows, reason",
    [
        (
            "t.csv",
            "path,label\n1.png,black, white cat\n",
            r"t.csv:2: the row has 3 columns, and .*2",
        ),
        ("t.csv", "path,labels\n1.png,a\n2.png,a,b\n", r"t.csv:3: the row has 3 columns"),
        (
            "metadata.jsonl",
            '{"path": "1.png", "label": null}\n',
            r"metadata.jsonl:1: .*one label. Received none",
        ),
        (
            "metadata.jsonl",
            '{"path": "1.png", "label": {"a": 1}}\n',
            r"metadata.jsonl:1: a label is a text",
        ),
    ],
)
def test_a_row_that_says_something_else_is_refused(table, rows, reason, tmp_path):
    folder = write(tmp_path / "all", "1.png", "2.png")
    (folder / table).write_text(rows)
    with pytest.raises(ValueError, match=reason):
        found(folder, tmp_path / "cache")


def test_empty_cells_at_the_end_of_a_row_and_whole_numbers_are_as_usual(tmp_path):
    folder = write(tmp_path / "all", "1.png", "2.png", "3.png")
    (folder / "t.csv").write_text("path,label\n1.png,cat,,\n2.png,cat\n3.png,dog\n")
    counts, _ = found(folder, tmp_path / "cache", validation_share=0)
    assert counts == {"train": {"cat": 2, "dog": 1}}
    (folder / "t.csv").unlink()
    rows = "".join(
        f'{{"path": "{i}.png", "label": {n}}}\n' for i, n in [(1, 1), (2, 1.0), (3, 0.5)]
    )
    (folder / "metadata.jsonl").write_text(rows)
    counts, _ = found(folder, tmp_path / "cache", validation_share=0)
    assert counts == {"train": {"0.5": 1, "1": 2}}


def test_a_table_takes_no_other_picture_of_the_same_name(tmp_path):
    folder = write(tmp_path / "all", "a/1.png", "b/1.png", "a/2.png", "b/3.png")
    (folder / "t.csv").write_text("id,label\n1,cat\n2,dog\n")
    with pytest.raises(ValueError, match=r"several pictures 1: .*a/1.png and .*b/1.png"):
        found(folder, tmp_path / "cache")
    (folder / "t.csv").write_text("id,label\nb/1.png,cat\n2,dog\na/3.png,dog\n")
    files = open_image_files(folder, tmp_path / "cache", validation_share=0)
    assert files.broken == ["a/3.png: there is no such file"]


def test_a_table_says_how_labels_are_divided_and_what_is_neither_0_nor_1(tmp_path):
    folder = write(tmp_path / "all", "1.png", "2.png")
    (folder / "t.csv").write_text("path,labels\n1.png,polar bear\n2.png,ice\n")
    several = Reading(several_labels=True)
    _, summary = found(folder, tmp_path / "cache", several, validation_share=0)
    assert "labels of t.csv are divided at blanks" in summary
    rows = "".join("1.png,1,0\n" for _ in range(200))
    (folder / "t.csv").write_text(f"path,cat,dog\n{rows}2.png,0,7\n")
    with pytest.raises(ValueError, match=r"t.csv:202: columns of classes hold 0 or 1.*dog '7'"):
        found(folder, tmp_path / "cache", several)


def test_rare_combinations_of_labels_are_not_held_out_by_force(tmp_path):
    folder = write(tmp_path / "all", *[f"{number}.png" for number in range(20)])
    rows = "".join(f"{n}.png,x{n // 2}|y\n" for n in range(20))
    (folder / "t.csv").write_text(f"path,labels\n{rows}")
    several = Reading(several_labels=True)
    files = open_image_files(folder, tmp_path / "cache", several, validation_share=0.1)
    assert len(files.parts["train"]) > 14


def test_parquet_files_of_the_hub_are_unpacked_once(tmp_path, monkeypatch):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    pictures = [encode(Image.new("RGB", (8, 8), (level, 0, 9)), "PNG") for level in range(4)]
    for name in ("train", "test"):
        table = pyarrow.table(
            {
                "image": [{"bytes": one, "path": "a.png"} for one in pictures],
                "label": [0, 1, 1, 0],
            }
        )
        features = {"info": {"features": {"label": {"names": ["cat", "dog"]}}}}
        metadata = {"huggingface": json.dumps(features)}
        folder = tmp_path / "all" / "data"
        folder.mkdir(parents=True, exist_ok=True)
        parquet.write_table(
            table.replace_schema_metadata(metadata), folder / f"{name}-00000-of-00001.parquet"
        )
    for _ in range(2):
        counts, _ = found(tmp_path / "all", tmp_path / "cache", validation_share=0)
        assert counts == {part: {"cat": 2, "dog": 2} for part in ("train", "test")}
        monkeypatch.setattr("towers.data.image_files.parquet.unpack", None)


def test_what_systems_write_is_no_picture(tmp_path):
    system = ["__MACOSX/cat/a.png", "@eaDir/b.png", "cat/@eaDir/0.png/THUMB.jpg", "cat/._0.png"]
    system += ["#recycle/cat/a.png", "lost+found/b.png"]
    folder = write(tmp_path / "all", *several("cat", "dog"), *system)
    counts, _ = found(folder, tmp_path / "cache", validation_share=0)
    assert counts == {"train": {"cat": 4, "dog": 4}}


def test_a_table_names_pictures_by_absolute_paths(tmp_path):
    folder = write(tmp_path / "all", *several("x"), "y.png")
    rows = "".join(f"{n},{(folder / 'x' / f'{n}.png').resolve()},{n % 2}\n" for n in range(4))
    (folder / "t.csv").write_text(f",path,label\n{rows}")
    here = os.path.relpath(folder)
    counts, summary = found(here, tmp_path / "cache", validation_share=0)
    assert counts == {"train": {"0": 2, "1": 2}} and "not used" not in summary
    assert "left out 1 picture that t.csv does not name" in summary


def test_a_picture_that_a_table_names_twice_stays_in_one_part(tmp_path):
    folder = write(tmp_path / "all", *several("x"))
    rows = "".join(f"x/{n}.png,{n % 2}\n" for n in range(4))
    (folder / "t.csv").write_text(f"path,label\n{rows}{rows}")
    counts, summary = found(folder, tmp_path / "cache")
    assert counts["validation"] == {"0": 2, "1": 2} and "in two" not in summary
    assert "4 rows with a picture that another row has, too" in summary


def test_a_table_has_lists_of_labels_as_python_writes_them(tmp_path):
    folder = write(tmp_path / "all", *several("x"))
    labels = [["cat"], ["cat", "red fox"], [], ["it's"]]
    with (folder / "t.csv").open("w") as file:
        csv.writer(file).writerows(
            [("path", "label"), *((f"x/{n}.png", one) for n, one in enumerate(labels))]
        )
    several_labels = Reading(several_labels=True)
    counts, _ = found(folder, tmp_path / "cache", several_labels, validation_share=0)
    assert counts == {"train": {"cat": 2, "red fox": 1, "it's": 1}}


def write_parquet(path, labels, names=()):
    """Writes a Parquet file with a picture for each label, all different; returns its folder."""
    pyarrow, parquet = (pytest.importorskip(f"pyarrow{name}") for name in ("", ".parquet"))
    numbers = range(len(labels))
    pictures = [encode(Image.new("RGB", (2, 2), (n % 256, n // 256, 9)), "PNG") for n in numbers]
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pyarrow.table({"image": pictures, "label": labels})
    features = json.dumps({"info": {"features": {"label": {"names": names}}}})
    parquet.write_table(table.replace_schema_metadata({"huggingface": features}), path)
    return path.parent


def test_the_folders_of_parquet_files_say_their_parts(tmp_path):
    for part, number in (("train", 4), ("test", 2)):
        write_parquet(tmp_path / "hub" / "default" / part / "0000.parquet", [0, 1] * number)
    counts, _ = found(tmp_path / "hub", tmp_path / "cache", validation_share=0)
    assert counts == {"train": {"0": 4, "1": 4}, "test": {"0": 2, "1": 2}}


def test_parquet_files_of_several_data_sets_are_refused(tmp_path):
    for name in ("train", "test"):
        write_parquet(tmp_path / "hub" / name / "0.parquet", [True, False], ["cat", "dog"])
    counts, _ = found(tmp_path / "hub", tmp_path / "cache", validation_share=0)
    assert counts == {part: {"cat": 1, "dog": 1} for part in ("train", "test")}
    write_parquet(tmp_path / "hub" / "other" / "0.parquet", [0, 1], ["hat", "coat"])
    with pytest.raises(ValueError, match="several data sets, whose classes have other names"):
        found(tmp_path / "hub", tmp_path / "cache")


def test_parquet_files_of_a_folder_must_have_the_same_classes(tmp_path):
    folder = write_parquet(tmp_path / "pets" / "a.parquet", [0, 1], ["cat", "dog"])
    write_parquet(folder / "b.parquet", [0, 1], ["dog", "cat"])
    with pytest.raises(ValueError, match=r"classes of .*b\.parquet are not .* remove .*cache"):
        found(folder, tmp_path / "cache")


def test_a_copy_of_a_parquet_file_holds_out_the_same_pictures(tmp_path):
    folder = write_parquet(tmp_path / "a" / "some.parquet", [0, 1] * 40)
    copy = shutil.copytree(folder, tmp_path / "b")
    os.utime(copy / "some.parquet", (1, 1))
    files = [open_image_files(one, tmp_path / "cache") for one in (folder, copy)]
    assert files[0].key == files[1].key
    assert files[0].parts["validation"].names == files[1].parts["validation"].names


def test_what_is_wrong_with_a_parquet_file_is_named(tmp_path):
    folder = write_parquet(tmp_path / "all" / "some.parquet", [*[0, 1] * 300, None])
    with pytest.raises(ValueError, match=r"some.parquet: row 601 has no label .* Received None"):
        found(folder, tmp_path / "cache")
    content = (folder / "some.parquet").read_bytes()
    (folder / "some.parquet").write_bytes(content[:-40])
    with pytest.raises(ValueError, match=r"some\.parquet cannot be read to its end: "):
        found(folder, tmp_path / "cache")


def test_a_trained_network_keeps_its_classes(tmp_path):
    folder = write(tmp_path / "all", *several("test/dog"))
    files = open_image_files(folder, tmp_path / "cache", class_names=["cat", "dog", "eel"])
    assert files.class_names == ("cat", "dog", "eel") and files.part("test").counts == {1: 4}


def test_what_is_done_to_pictures_is_counted(tmp_path):
    folder = write(tmp_path / "all", *several("a", "b"))
    exif = Image.Exif()
    exif[0x0112] = 6
    content = io.BytesIO()
    Image.effect_noise((9, 5), 90).save(content, "JPEG", exif=exif)
    (folder / "a" / "turned.jpg").write_bytes(content.getvalue())
    clear = Image.new("RGBA", (6, 6), (0, 0, 0, 0))
    clear.putpixel((1, 1), (0, 0, 0, 255))
    (folder / "b" / "clear.png").write_bytes(encode(clear, "PNG"))
    (folder / "b" / "flat.png").write_bytes(encode(Image.new("L", (6, 6), 9), "PNG"))
    _, summary = found(folder, tmp_path / "cache")
    assert "1 turned upright, as their tags say, 1 put on the background" in summary
    assert "1 picture of one colour" in summary
