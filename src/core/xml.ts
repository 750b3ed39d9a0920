/** Escapes text for XML, so that a parser reads the same text again. */

/** Characters that XML 1.0 §2.2 does not allow, not even escaped. */
const NO_CHARACTER = /[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/gu;
const ESCAPES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  '\n': '&#10;',
  '\r': '&#13;',
  '\t': '&#9;',
};

/** Formats attributes, each with a leading space. */
export function toXmlAttributes(values: Readonly<Record<string, string | number>>): string {
  return Object.entries(values)
    .map(([name, value]) => ` ${name}="${escapeXml(String(value))}"`)
    .join('');
}

/**
 * Escapes text for element content and attributes. Line ends are escaped, too: in attributes a parser would convert them to
 * spaces (XML 1.0 §3.3.3).
 */
export function escapeXml(text: string): string {
  return text.replace(NO_CHARACTER, '\ufffd').replace(/[&<>"\n\r\t]/g, (sign) => ESCAPES[sign] ?? sign);
}
