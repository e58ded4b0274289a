package proxy

import (
	"cmp"
	"mime"
	"path"
	"strings"
)

// fileTypes are the types that do not depend on the machine. Text is said to be
// UTF-8: without that, and without guessing, a browser takes it for Latin-1.
var fileTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".htm": "text/html; charset=utf-8",
	".css": "text/css; charset=utf-8",
	".js":  "text/javascript; charset=utf-8", ".mjs": "text/javascript; charset=utf-8",
	".txt": "text/plain; charset=utf-8", ".log": "text/plain; charset=utf-8",
	".md": "text/markdown; charset=utf-8", ".csv": "text/csv; charset=utf-8",
	".ics": "text/calendar; charset=utf-8", ".vtt": "text/vtt; charset=utf-8",

	".json": "application/json", ".map": "application/json", ".geojson": "application/geo+json",
	".webmanifest": "application/manifest+json", ".xml": "application/xml",
	".rss": "application/rss+xml", ".atom": "application/atom+xml",
	".wasm": "application/wasm", ".pdf": "application/pdf", ".rtf": "application/rtf", ".epub": "application/epub+zip",
	".zip": "application/zip", ".gz": "application/gzip", ".tgz": "application/gzip", ".tar": "application/x-tar",
	".bz2": "application/x-bzip2", ".xz": "application/x-xz", ".zst": "application/zstd", ".7z": "application/x-7z-compressed",
	".doc":  "application/msword",
	".xls":  "application/vnd.ms-excel",
	".ppt":  "application/vnd.ms-powerpoint",
	".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
	".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
	".pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
	".odt":  "application/vnd.oasis.opendocument.text",
	".ods":  "application/vnd.oasis.opendocument.spreadsheet",
	".odp":  "application/vnd.oasis.opendocument.presentation",
	".m3u8": "application/vnd.apple.mpegurl", ".mpd": "application/dash+xml",

	".svg": "image/svg+xml", ".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif",
	".webp": "image/webp", ".avif": "image/avif", ".heic": "image/heic", ".ico": "image/x-icon", ".bmp": "image/bmp",
	".tif": "image/tiff", ".tiff": "image/tiff",

	".woff": "font/woff", ".woff2": "font/woff2", ".ttf": "font/ttf", ".otf": "font/otf", ".eot": "application/vnd.ms-fontobject",

	".mp3": "audio/mpeg", ".m4a": "audio/mp4", ".aac": "audio/aac", ".wav": "audio/wav", ".flac": "audio/flac",
	".ogg": "audio/ogg", ".oga": "audio/ogg", ".opus": "audio/ogg", ".weba": "audio/webm",
	".mp4": "video/mp4", ".m4v": "video/mp4", ".webm": "video/webm", ".ogv": "video/ogg", ".mov": "video/quicktime",
	".mpeg": "video/mpeg", ".mpg": "video/mpeg", ".avi": "video/x-msvideo", ".mkv": "video/x-matroska", ".ts": "video/mp2t",
}

// typeOf is the media type of a file by the end of its name, in any case: from
// the table, else what the system's own tables say, else bytes of any kind.
func typeOf(name string) string {
	end := strings.ToLower(path.Ext(name))
	return cmp.Or(fileTypes[end], mime.TypeByExtension(end), "application/octet-stream")
}
