/** The rules of methods and media types: every request that a route lists must be one that its scheme can accept. */

import { type MediaForm, NO_MEDIA_TYPE, toEssence, toMediaForm } from '../../core/media-type.ts';
import { error, type Path, type Problem, warning } from '../../core/problem.ts';
import { METHODS_WITHOUT_CONTENT } from '../../core/request.ts';
import { mayBeEmpty, needsContent, readsBody, signsSortedForm, toSenderMethods } from '../../verify/schemes/coverage.ts';
import type { SchemeDescription } from '../../verify/schemes/description.ts';
import { toHeaderNames } from '../../verify/schemes/head.ts';
import type { RouteConfig, WebhookConfig } from '../schema/config.ts';

/** Entries of `match.methods` and `contentTypes` by which every delivery would be rejected. */
export function checkContent(webhook: WebhookConfig, { match }: RouteConfig, path: Path, matchPath: Path): Problem[] {
  return [
    ...checkMethods(webhook, match.methods ?? [], [...matchPath, 'methods']),
    ...checkMediaTypes(webhook, [...path, 'contentTypes']),
    ...checkAbsence(webhook, match.withoutHeaders ?? [], [...matchPath, 'withoutHeaders']),
  ];
}

function checkMethods(
  { description, handshake, scheme, contentTypes }: WebhookConfig,
  listed: readonly string[],
  path: Path,
): Problem[] {
  if (listed.length === 0) return [];
  const own = toSenderMethods(description);
  if (own !== undefined && !listed.some((method) => own.includes(method)))
    return [
      error(
        path,
        `${description.from?.title ?? scheme} sends deliveries by ${own.join(', ')}, which the route rejects with 405`,
        `methods: [${own[0]}]; or remove methods`,
      ),
    ];
  // A handshake by GET or HEAD needs no entry, and may have one.
  if (handshake !== undefined) return [];
  if (!needsContent(description)) {
    const useless = listed.filter((method) => METHODS_WITHOUT_CONTENT.has(method) && !mayBeEmpty(description, method));
    if (useless.length === 0 || contentTypes.includes(NO_MEDIA_TYPE)) return [];
    const message = `requests by ${useless.join(', ')} usually have no Content-Type, and then get 415`;
    const fix = own === undefined ? '' : `methods: [${own.join(', ')}], by which ${scheme} sends; or `;
    return [warning(path, message, `${fix}add none to contentTypes`)];
  }
  return listed.flatMap((method, index) =>
    METHODS_WITHOUT_CONTENT.has(method)
      ? [
          error(
            [...path, index],
            `${scheme} reads the body, which a ${method} request does not have, so all of them are rejected`,
            `methods: [POST]`,
          ),
        ]
      : [],
  );
}

function checkMediaTypes({ contentTypes, description, scheme }: WebhookConfig, path: Path): Problem[] {
  const own = description.contentTypes;
  const found = contentTypes.flatMap((contentType, index) => {
    const problem = findProblem(contentType, description);
    if (problem === undefined) return [];
    const fix = `remove it; the media types of ${scheme} are ${own.join(', ')}`;
    return [error([...path, index], `no delivery can be ${contentType}: ${problem}`, fix)];
  });
  const { from } = description;
  const essences = new Set(own.map(toEssence));
  if (found.length > 0 || from === undefined || contentTypes.some((each) => essences.has(toEssence(each)))) return found;
  // A warning, because a sender may have settings that its documents do not name.
  const message = `${from.title} sends ${own.join(' or ')}, so its deliveries get 415`;
  return [warning(path, message, `contentTypes: [${own.join(', ')}]; or remove contentTypes`)];
}

const FORMS: ReadonlySet<MediaForm> = new Set(['form', 'multipart']);

function findProblem(contentType: string, description: SchemeDescription): string | undefined {
  if (contentType === NO_MEDIA_TYPE) return needsContent(description) ? 'the scheme reads the body' : undefined;
  const form = toMediaForm(contentType);
  if (signsSortedForm(description) && form === 'multipart') return 'the scheme signs the fields of a URL-encoded form';
  if (readsForm(description)) return FORMS.has(form) ? undefined : 'the scheme reads the fields of a form';
  return readsJson(description) && (FORMS.has(form) || form === 'xml') ? 'the scheme reads the body as JSON' : undefined;
}

/** Whether the signature, or a signed value, is in a form. */
function readsForm(description: SchemeDescription): boolean {
  const { signature, signed, timestamp } = description;
  const isInForm = (place: unknown): boolean => typeof place === 'object' && place !== null && 'form' in place;
  return signature?.form !== undefined || signsSortedForm(description) || isInForm(timestamp?.from) || signed.some(isInForm);
}

function readsJson(description: SchemeDescription): boolean {
  const { contentShape, signature, timestamp } = description;
  const isTimeInBody = timestamp !== undefined && 'json' in timestamp.from;
  return contentShape !== undefined || isTimeInBody || signature?.content !== undefined || readsBody(description);
}

/** A route cannot require that a header is absent that each of its deliveries has. */
function checkAbsence({ description, contentTypes, scheme }: WebhookConfig, names: readonly string[], path: Path): Problem[] {
  const { signature } = description;
  const needed = signature?.moreHeaders === undefined ? toHeaderNames(description) : [];
  const own = new Set(needed.filter((name) => name === signature?.header.toLowerCase() && description.acceptsTwins !== true));
  return names.flatMap((name, index) => {
    const isType = name === 'content-type' && !contentTypes.includes(NO_MEDIA_TYPE);
    if (!own.has(name) && !isType) return [];
    return [error([...path, index], `each delivery of ${scheme} has ${name}, so the route receives none`, 'remove it')];
  });
}
