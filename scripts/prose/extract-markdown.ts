/** Reads the prose of a Markdown page: headings, paragraphs, table cells, and the comments of its YAML and shell blocks. */
import type { Code, Nodes, Parents } from 'mdast';
import { fromMarkdown } from 'mdast-util-from-markdown';
import { gfmTableFromMarkdown } from 'mdast-util-gfm-table';
import { gfmTable } from 'micromark-extension-gfm-table';
import { blank, CODE, type Passage, type Range } from './passage.ts';

export function extractMarkdown(source: string): Passage[] {
  const tree = fromMarkdown(source, { extensions: [gfmTable()], mdastExtensions: [gfmTableFromMarkdown()] });
  const passages: Passage[] = [];
  const visit = (node: Nodes): void => {
    if (node.type === 'code') passages.push(...extractComments(source, node));
    else if (node.type === 'heading' || node.type === 'paragraph' || node.type === 'tableCell') {
      const [start, end] = toRange(node);
      const text = blankMarkup(source.slice(start, end), start, node);
      passages.push({ kind: node.type === 'heading' ? 'heading' : 'prose', start, text });
    } else if ('children' in node) for (const child of node.children) visit(child);
  };
  visit(tree);
  return passages;
}

/** Keeps text; replaces code by `CODE` and all markup by spaces. */
function blankMarkup(text: string, offset: number, block: Parents): string {
  const kept: Range[] = [];
  const code: Range[] = [];
  const visit = (node: Nodes): void => {
    const [start, end] = toRange(node);
    if (node.type === 'text') kept.push([start - offset, end - offset]);
    else if (node.type === 'inlineCode' || node.type === 'html') code.push([start - offset, end - offset]);
    else if ('children' in node) for (const child of node.children) visit(child);
  };
  for (const child of block.children) visit(child);
  let result = text.replace(/[^\n]/g, ' ');
  for (const [start, end] of kept) result = result.slice(0, start) + text.slice(start, end) + result.slice(end);
  return blank(result, code, CODE);
}

/** Whole-line and trailing comments. */
function extractComments(source: string, node: Code): Passage[] {
  if (!['yaml', 'sh', 'toml'].includes(node.lang ?? '')) return [];
  const [start, end] = toRange(node);
  const found = source.slice(start, end).matchAll(/(?<=^|\s)# (.*)$/gm);
  return [...found].map((match) => ({ kind: 'prose', start: start + match.index + 2, text: match[1] ?? '' }));
}

function toRange(node: Nodes): Range {
  return [node.position?.start.offset ?? 0, node.position?.end.offset ?? 0];
}
