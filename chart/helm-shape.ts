/** Converts a shape to a Helm template, so that the library chart has the same sidecar as the injector. */
import {
  isEach,
  isList,
  isPlaceholder,
  isText,
  isWhen,
  type Shape,
  type ShapeMap,
  type Text,
} from '../src/kubernetes/injector/sidecar.ts';

/** Returns the template: block YAML at column 0, whose dot is the object of values. */
export function toHelm(shape: Shape): string {
  return `${toLines(shape).join('\n')}\n`;
}

function toLines(shape: Shape): string[] {
  if (isList(shape)) return shape.flatMap((item) => toItem(item));
  return Object.entries(shape as ShapeMap).flatMap(([key, inner]) => toEntry(key, inner));
}

function toEntry(key: string, shape: Shape): string[] {
  if (typeof shape === 'object' && isWhen(shape)) return guard(`if .${shape.$when}`, toEntry(key, shape.then));
  const scalar = toScalar(shape);
  if (scalar !== undefined) return [`${key}: ${scalar}`];
  return [`${key}:`, ...indent(toLines(shape))];
}

function toItem(shape: Shape): string[] {
  if (typeof shape === 'object' && isWhen(shape)) return guard(`if .${shape.$when}`, toItem(shape.then));
  // Inside, the values are those of the entry.
  if (typeof shape === 'object' && isEach(shape)) return guard(`range .${shape.$each}`, toItem(shape.of));
  const scalar = toScalar(shape);
  if (scalar !== undefined) return [`- ${scalar}`];
  const [first = '', ...rest] = toLines(shape);
  if (first.startsWith('{{')) throw new Error('an item cannot begin with a field that may be missing');
  return [`- ${first}`, ...indent(rest)];
}

function guard(action: string, lines: readonly string[]): string[] {
  return [`{{- ${action} }}`, ...lines, '{{- end }}'];
}

function indent(lines: readonly string[]): string[] {
  return lines.map((line) => (line.startsWith('{{- ') ? line : `  ${line}`));
}

function toScalar(shape: Shape): string | undefined {
  if (typeof shape !== 'object') return JSON.stringify(shape);
  if (isPlaceholder(shape)) return `{{ .${shape.$value} | toJson }}`;
  return isText(shape) ? toPrintf(shape) : undefined;
}

function toPrintf({ $text }: Text): string {
  const format = $text.map((part) => (typeof part === 'string' ? part.replaceAll('%', '%%') : '%v')).join('');
  const values = $text.flatMap((part) => (typeof part === 'string' ? [] : [`.${part.$value}`]));
  return `{{ printf ${JSON.stringify(format)} ${values.join(' ')} | toJson }}`;
}
