/** Compares names as the most lenient app does. */

const NOT_ASCII = /[^\0-\x7f]/;

/**
 * Makes equal all texts that differ only in case, by any rule: Unicode's folding, simple (Go) and full (Python), and upper and lower case
 * (.NET, Java). `ſ` becomes s, the Kelvin sign k, `İ` and `ı` i, `ẞ` and `ß` ss.
 */
export function foldCase(text: string): string {
  if (!NOT_ASCII.test(text)) return text.toLowerCase();
  // First, because each of these becomes two characters: a hostile name has nothing else.
  const undotted = text.replaceAll(/\u0130+/g, (found) => 'i'.repeat(found.length));
  return undotted.toLowerCase().toUpperCase().toLowerCase().replaceAll('i\u0307', 'i').replaceAll('ς', 'σ');
}
