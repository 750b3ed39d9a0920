/** The sidebar, from the index of the pages (docs/README.md): a heading is a group, a bold line a group in it, a list item or a row a page. */
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Link, Nodes, RootContent } from 'mdast';
import { fromMarkdown } from 'mdast-util-from-markdown';
import { gfmTableFromMarkdown } from 'mdast-util-gfm-table';
import { gfmTable } from 'micromark-extension-gfm-table';

interface PageItem {
  readonly text: string;
  readonly link: string;
}

/** A group of the sidebar, which may contain others. */
export interface Section {
  readonly text: string;
  readonly collapsed?: boolean;
  readonly items: (PageItem | Section)[];
}

/** Reads the groups of the index; `resolve` turns the target of a link into the link of the sidebar. */
export function readSections(index: string, resolve: (target: string) => string): Section[] {
  const sections: Section[] = [];
  let group: Section | undefined;
  const options = { extensions: [gfmTable()], mdastExtensions: [gfmTableFromMarkdown()] };
  for (const block of fromMarkdown(readFileSync(index, 'utf8'), options).children) {
    if (block.type === 'heading' && block.depth === 2) {
      // As in "Tutorials: learn by doing".
      group = { text: toText(block).split(':')[0] ?? '', items: [] };
      sections.push(group);
    } else if (block.type === 'paragraph' && block.children[0]?.type === 'strong') {
      group = { text: toText(block.children[0]), collapsed: true, items: [] };
      sections.at(-1)?.items.push(group);
    }
    group?.items.push(...findItems(block, resolve));
  }
  return sections;
}

/** The pages of a folder, by file name. */
export function readTitles(docs: string, folder: string): PageItem[] {
  const files = globSync(`${folder}/*.md`, { cwd: docs }).sort();
  return files.map((file) => {
    const [, title = file] = /^# (.*)$/m.exec(readFileSync(join(docs, file), 'utf8')) ?? [];
    return { text: title.replaceAll('`', ''), link: toPage(file) };
  });
}

/** The path of a page on the site, from that of its file. */
export function toPage(file: string): string {
  return file.replace(/^(?!https:)/, '/').replace(/\.md(?=$|#)/, '');
}

/** The first link of each item or row. */
function findItems(block: RootContent, resolve: (target: string) => string): PageItem[] {
  if (block.type !== 'list' && block.type !== 'table') return [];
  return block.children.flatMap((entry) => {
    const link = findLink(entry);
    return link === undefined ? [] : [{ text: toText(link), link: toPage(resolve(link.url)) }];
  });
}

function findLink(node: Nodes): Link | undefined {
  if (node.type === 'link') return node;
  if (!('children' in node)) return undefined;
  for (const child of node.children) {
    const link = findLink(child);
    if (link !== undefined) return link;
  }
  return undefined;
}

function toText(node: Nodes): string {
  if ('value' in node) return node.value;
  return 'children' in node ? node.children.map(toText).join('') : '';
}
