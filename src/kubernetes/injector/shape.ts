/** Shapes: Kubernetes objects with placeholders. The sidecar is defined once as a shape, and filled with values, CEL or Helm expressions. */

/** A placeholder for a value. */
interface Placeholder<Name extends string = string> {
  readonly $value: Name;
}
/** Text that contains placeholders. */
export interface Text<Name extends string = string> {
  readonly $text: readonly (string | Placeholder<Name>)[];
}
/** Present only if the condition holds; as an item of a list it stands for zero or one items. */
interface When<Name extends string = string> {
  readonly $when: Name;
  readonly then: Shape;
}
/** One item for each entry of a list of entries. */
interface Each<Name extends string = string> {
  readonly $each: Name;
  readonly of: Shape;
}
/** A value with placeholders. */
export type Shape = string | number | boolean | Placeholder | Text | When | Each | readonly Shape[] | ShapeMap;
/** An object with placeholders. */
export interface ShapeMap {
  readonly [key: string]: Shape;
}

/** The values for a shape's placeholders. */
export interface Values {
  readonly [name: string]: string | number | boolean | undefined | readonly Values[];
}

export const value = <Name extends string>($value: Name): Placeholder<Name> => ({ $value });
export const text = (...$text: readonly (string | Placeholder)[]): Text => ({ $text });
export const when = ($when: string, then: Shape): When => ({ $when, then });
export const each = ($each: string, of: Shape): Each => ({ $each, of });

export const isPlaceholder = (shape: Shape): shape is Placeholder => typeof shape === 'object' && '$value' in shape;
export const isText = (shape: Shape): shape is Text => typeof shape === 'object' && '$text' in shape;
export const isWhen = (shape: Shape): shape is When => typeof shape === 'object' && '$when' in shape;
export const isEach = (shape: Shape): shape is Each => typeof shape === 'object' && '$each' in shape;
export const isList = (shape: Shape): shape is readonly Shape[] => Array.isArray(shape);

/** Fills the shape with values; the values of a list's entries shadow outer ones. */
export function fill(shape: Shape, values: Values): unknown {
  if (typeof shape !== 'object') return shape;
  if (isPlaceholder(shape)) return values[shape.$value];
  if (isText(shape)) return shape.$text.map((part) => (typeof part === 'string' ? part : String(values[part.$value]))).join('');
  if (isList(shape)) return shape.flatMap((item) => fillItem(item, values));
  return Object.fromEntries(
    Object.entries(shape as ShapeMap).flatMap(([key, inner]) => fillItem(inner, values).map((filled) => [key, filled])),
  );
}

/** Fills an item of a list, which can result in zero, one or several items. */
function fillItem(shape: Shape, values: Values): unknown[] {
  if (isWhen(shape)) return isSet(values[shape.$when]) ? fillItem(shape.then, values) : [];
  if (!isEach(shape)) return [fill(shape, values)];
  const entries = values[shape.$each];
  return Array.isArray(entries) ? entries.flatMap((entry: Values) => fillItem(shape.of, { ...values, ...entry })) : [];
}

function isSet(found: Values[string]): boolean {
  return found !== undefined && found !== false;
}
