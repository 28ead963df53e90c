"""Writes scikit-learn's handwritten digits as PREFIX.csv and PREFIX.validation.csv, for 07_own_task.cc.

  python3 examples/digits.py digits
"""

import argparse
import csv

from sklearn.datasets import load_digits


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prefix")
    prefix = parser.parse_args().prefix
    digits = load_digits()
    rows = [[*map(int, pixels), int(digit)] for pixels, digit in zip(digits.data, digits.target)]
    names = [f"pixel{i}" for i in range(64)] + ["digit"]
    for path, part in ((f"{prefix}.csv", [row for i, row in enumerate(rows) if i % 10]),
                       (f"{prefix}.validation.csv", rows[::10])):
        with open(path, "w", newline="") as file:
            csv.writer(file).writerows([names, *part])
        print(f"wrote {path}: {len(part)} digits")


if __name__ == "__main__":
    main()
