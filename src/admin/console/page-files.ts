/** The files of the web page: they are built from admin/page, and lie next to the bundle. */
import { readFile } from 'node:fs/promises';

/** A file that the page loads. */
export interface PageFile {
  readonly contentType: string;
  readonly content: Buffer;
}

/** In the source tree, the build's folder has them. */
const FOLDER = new URL(import.meta.url.endsWith('.ts') ? '../../../dist/' : './', import.meta.url);
const BUILT: Readonly<Record<string, readonly [file: string, contentType: string]>> = {
  '/console/page.js': ['console-page.js', 'text/javascript; charset=utf-8'],
  '/console/page.css': ['console-page.css', 'text/css; charset=utf-8'],
};
/** A gate: two posts and a bar. */
const ICON =
  '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="7" fill="#0b5cad"/><path d="M8 25V9m16 16V9M4 15h24" stroke="#fff" stroke-width="4" stroke-linecap="round"/></svg>\n';

/** Reads a file once; undefined if the page has no such file. Rejects if it was not built. */
export class PageFiles {
  readonly #files = new Map<string, PageFile>([
    ['/console/icon.svg', { contentType: 'image/svg+xml', content: Buffer.from(ICON) }],
  ]);

  async find(path: string): Promise<PageFile | undefined> {
    const known = this.#files.get(path);
    if (known !== undefined) return known;
    const [name, contentType] = Object.hasOwn(BUILT, path) ? (BUILT[path] ?? []) : [];
    if (name === undefined || contentType === undefined) return undefined;
    const file = { contentType, content: await readFile(new URL(name, FOLDER)) };
    this.#files.set(path, file);
    return file;
  }
}
