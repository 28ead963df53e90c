'use strict';

// Cells in rows and columns on a canvas. Arrow keys walk over the cells; `pick(cell)` follows.
class GridPicture {
  constructor(host, label, pick = () => {}) {
    this.figure = new Figure(host, label);
    this.canvas = new Canvas(this.figure.picture, (context, width) => this.draw(context, width));
    this.pick = pick;
    this.grid = { columns: 0, rows: 0, cells: [] };
    this.chosen = 0;
    this.figure.makeSlider(label, (key, isFast) => this.key(key, isFast));
    this.canvas.canvas.addEventListener('pointermove', (event) => this.choose(this.cellAt(event), false));
    this.canvas.canvas.addEventListener('click', (event) => this.choose(this.cellAt(event), true));
  }

  // cells: {column, row, share (0 to 1; null: unknown), text, words, isStarving}; columnGap(column), rowGap(row):
  // groups before it; labels are drawn where there is room.
  // `first` is chosen until the reader chooses.
  set(grid, first = 0) {
    if (!this.isChosen) this.chosen = Math.max(first, 0);
    this.grid = { columnGap: () => 0, rowGap: () => 0, rowLabels: [], columnLabels: [], ...grid };
    this.places = new Map(grid.cells.map((cell, index) => [cell.row * grid.columns + cell.column, index]));
    this.chosen = Math.min(this.chosen, Math.max(grid.cells.length - 1, 0));
    this.canvas.redraw();
    this.tell();
  }

  measure(width) {
    const { columns, rows, columnGap, rowGap, rowLabels } = this.grid;
    const longest = Math.max(0, ...rowLabels.slice(0, 200).map((text) => text.length));
    const left = rowLabels.length ? Math.min(longest * 6.6 + 10, width * 0.3) : 0;
    const gap = 5;
    const room = width - left - gap * columnGap(columns - 1) - 2;
    const most = Math.min(Math.max(560 / Math.max(columns, 1), 46), 90);  // few ranks: larger cells
    const cell = Math.min(Math.max(room / Math.max(columns, 1), 1), most);
    const high = Math.min(Math.max(cell * 0.7, rows > 64 ? 3 : 12), 40);
    const top = this.grid.columnLabels.length && cell >= 20 ? 18 : 2;
    return { left, top, cell, high, gap, height: top + rows * high + gap * rowGap(rows - 1) + 4 };
  }

  boxOf(cell, size) {
    return [size.left + cell.column * size.cell + size.gap * this.grid.columnGap(cell.column),
      size.top + cell.row * size.high + size.gap * this.grid.rowGap(cell.row)];
  }

  draw(context, width) {
    if (!this.grid.cells.length) return 24;
    const size = this.measure(width);
    this.size = size;
    if (!context) return size.height;
    const inset = size.cell > 6 ? 1 : 0;
    context.textAlign = 'center';
    context.textBaseline = 'middle';
    for (const cell of this.grid.cells) {
      const [x, y] = this.boxOf(cell, size);
      const [wide, high] = [size.cell - inset, size.high - (size.high > 6 ? 1 : 0)];
      const isKnown = Number.isFinite(cell.share);
      const { fill, isLight } = isKnown ? rampColour(cell.share) : { fill: colour('panel'), isLight: true };
      context.fillStyle = fill;
      context.fillRect(x, y, wide, high);
      context.strokeStyle = context.fillStyle = isKnown ? (isLight ? '#111111' : '#ffffff') : colour('quiet');
      if (!isKnown || cell.isStarving) this.cross(context, x, y, wide, high);
      if (cell.text && wide >= cell.text.length * 6.6 + 2 && high >= 14) {
        context.fillText(cell.text, x + wide / 2, y + high / 2 + 1);
      }
    }
    this.drawLabels(context, size);
    this.outline(context, this.grid.cells[this.chosen], size);
    return size.height;
  }

  cross(context, x, y, wide, high) {
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(x + 1, y + high - 1);
    context.lineTo(x + wide - 1, y + 1);
    context.stroke();
  }

  outline(context, cell, size) {
    const [x, y] = this.boxOf(cell, size);
    context.lineWidth = 2;
    context.strokeStyle = colour('focus');
    context.strokeRect(x - 0.5, y - 0.5, Math.max(size.cell, 5), Math.max(size.high, 5));
  }

  drawLabels(context, size) {
    const { rowLabels, columnLabels } = this.grid;
    context.fillStyle = colour('quiet');
    context.textAlign = 'right';
    const every = Math.ceil(14 / size.high);
    rowLabels.forEach((text, row) => {
      if (row % every === 0) {
        const y = this.boxOf({ row, column: 0 }, size)[1];
        context.fillText(plain(text).slice(0, 40), size.left - 6, y + size.high / 2 + 1, size.left - 8);
      }
    });
    context.textAlign = 'center';
    if (size.top) {
      const each = Math.ceil((Math.max(...columnLabels.map((text) => text.length)) * 6.6 + 4) / size.cell);
      columnLabels.forEach((text, column) => {
        if (column % each) return;
        const x = this.boxOf({ row: 0, column }, size)[0];
        context.fillText(plain(text).slice(0, 8), x + size.cell / 2, 9);
      });
    }
  }

  cellAt(event) {
    const box = this.canvas.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    return this.grid.cells.findIndex((cell) => {
      const [left, top] = this.boxOf(cell, this.size);
      return x >= left && x < left + this.size.cell && y >= top && y < top + this.size.high;
    });
  }

  choose(index, isPicked) {
    if (index < 0 || !this.grid.cells.length) return;
    this.isChosen = true;
    if (index !== this.chosen) {
      this.chosen = index;
      this.canvas.redraw();
      this.tell();
    }
    if (isPicked) this.pick(this.grid.cells[index]);
  }

  tell() {
    const cell = this.grid.cells[this.chosen];
    if (cell) this.figure.setSlider(this.chosen, 0, this.grid.cells.length - 1, cell.words);
    else put(this.figure.readout, 'Nothing is recorded.');
  }

  key(name, isFast) {
    const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    const { cells, columns, rows } = this.grid;
    if (!cells.length) return false;
    if (name === 'Home') this.choose(0, true);
    if (name === 'End') this.choose(cells.length - 1, true);
    if (!(name in steps)) return name === 'Home' || name === 'End';
    let { row, column } = cells[this.chosen];
    for (let left = isFast ? 8 : 1; left > 0;) {
      row += steps[name][0];
      column += steps[name][1];
      if (row < 0 || column < 0 || row >= rows || column >= columns) break;
      const found = this.places.get(row * columns + column);
      if (found === undefined) continue;
      left -= 1;
      this.choose(found, left === 0);
    }
    return true;
  }
}
