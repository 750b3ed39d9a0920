/** How figures are written on the page. */

/** Three digits, with commas. */
export function formatCount(value: number): string {
  return Number(value.toPrecision(3)).toLocaleString('en', { maximumFractionDigits: 1 });
}

export function formatPercent(share: number): string {
  return `${(share * 100).toFixed(0)} %`;
}

const UNITS = ['bytes', 'KB', 'MB', 'GB', 'TB', 'PB'];

/** In decimal units, with two digits. */
export function formatBytes(bytes: number): string {
  const power = bytes < 1 ? 0 : Math.min(Math.floor(Math.log10(bytes) / 3), UNITS.length - 1);
  return `${Number((bytes / 1_000 ** power).toPrecision(2)).toLocaleString('en')} ${UNITS[power]}`;
}
