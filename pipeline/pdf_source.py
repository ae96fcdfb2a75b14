"""Open a PDF with PDFium: passwords, page count and labels, attachments, pages as displayed.

All of PDFium runs in the thread that opened the file; every handle is closed by name, never by the collector.
"""

from __future__ import annotations

import ctypes
import io
import logging
import os
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from pipeline import pdf_bytes
from pipeline.pdfium_lock import in_pdfium
from pipeline.source import PDFIUM_HEADER_BYTES, ClosedAtExit
from storage.errors import (
    CorruptError,
    NoPagesError,
    PasswordError,
    UnsupportedEncryptionError,
    UnsupportedError,
    from_os_error,
)
from storage.records import DocumentInfo, PageWarning

log = logging.getLogger(__name__)

# Up to here a wrong /Count costs little: each page that is not there becomes one failed page.
MAX_TRUSTED_PAGES = 20_000
MAX_ATTACHMENTS = 1000


class PdfPage(ClosedAtExit):
    """A loaded PDF page; see `pipeline.source.SourcePage`."""

    native_px: tuple[int, int] | None = None

    def __init__(self, page: Any, number: int, label: str | None, path: Path) -> None:
        self.pdf: Any = page
        self.path = path
        self.number = number
        self.label = label
        self.width_pt, self.height_pt = (float(side) for side in page.get_size())
        if not (0 < self.width_pt < float("inf") and 0 < self.height_pt < float("inf")):
            page.close()
            raise CorruptError("the page has no area", file=path, page=number)

    def decode(self, size: tuple[int, int]) -> NoReturn:
        """Never called: a PDF page is rendered, not decoded."""
        raise TypeError("a PDF page is rendered, not decoded")

    @in_pdfium
    def close(self) -> None:
        """Close the page handle and what was loaded from it."""
        if self.pdf is not None:
            self.pdf.close()
            self.pdf = None


class PdfSource(ClosedAtExit):
    """An open PDF; see `pipeline.source.Source`."""

    @in_pdfium
    def __init__(self, path: Path, *, passwords: Sequence[str] = (), header_at: int = 0) -> None:
        self._path = path
        self._file: _Tail | None = None
        self._held: Any = None  # PDFium calls back into it as long as the document is open
        self._pdf: Any = None
        try:
            self._pdf = self._open(passwords, header_at)
            self.info = self._describe()
        except BaseException:
            self.close()
            raise

    @in_pdfium
    def page(self, number: int) -> PdfPage:
        """Open page `number`, from 1. Raises: `CorruptError` when PDFium cannot load it."""
        import pypdfium2

        if not 1 <= number <= self.info.pages:
            raise CorruptError(f"there is no such page among {self.info.pages}", file=self._path, page=number)
        try:
            page = self._pdf.get_page(number - 1)
        except pypdfium2.PdfiumError:
            raise CorruptError("the page cannot be loaded", file=self._path, page=number) from None
        label = self.info.labels[number - 1] if self.info.labels else None
        return PdfPage(page, number, label, self._path)

    @in_pdfium
    def close(self) -> None:
        """Close the document and the file behind it."""
        if self._pdf is not None:
            self._pdf.close()
            self._pdf = None
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self, passwords: Sequence[str], header_at: int) -> Any:
        """The document, opened with the first password that fits; the empty one comes first."""
        import pypdfium2
        import pypdfium2.raw as pdfium

        for password in _spellings(passwords):
            handle = self._load(password, header_at)
            if handle:
                if pdfium.FPDF_GetPageCount(handle) < 1:
                    pdfium.FPDF_CloseDocument(handle)
                    raise self._no_pages()
                document = pypdfium2.PdfDocument(handle)
                _init_forms(document)
                return document
            # Read only after a null handle: PDFium sets the code on failure and never clears it, so that after a
            # success (of a document without pages, say) it is what an earlier file left there.
            code = pdfium.FPDF_GetLastError()
            if code != pdfium.FPDF_ERR_PASSWORD:
                raise self._error(code)
        match len(passwords):
            case 0:
                tried = "it needs a password"
            case 1:
                tried = "the password does not open it"
            case count:
                tried = f"none of the {count} known passwords opens it"
        raise PasswordError(f"the PDF is encrypted and {tried}", file=self._path)

    def _load(self, password: str, header_at: int) -> Any:
        """The raw document handle, null on failure."""
        import pypdfium2.raw as pdfium

        secret = _secret(password)
        if header_at < PDFIUM_HEADER_BYTES - 4:
            return pdfium.FPDF_LoadDocument(os.fsencode(self._path) + b"\0", secret)
        if self._file is None:
            try:
                self._file = _Tail(self._path, header_at)
            except OSError as error:
                raise from_os_error(error, file=self._path) from error
        access = self._held = _file_access(self._file)
        return pdfium.FPDF_LoadCustomDocument(access, secret)

    def _error(self, code: int) -> Exception:
        """What a code of FPDF_GetLastError means for the person whose file it is."""
        import pypdfium2.raw as pdfium

        if code == pdfium.FPDF_ERR_SECURITY:
            return UnsupportedEncryptionError(
                "the PDF is encrypted by something other than a password (a certificate, say)",
                file=self._path,
            )
        if code == pdfium.FPDF_ERR_FILE:
            try:
                self._path.open("rb").close()
            except OSError as error:
                return from_os_error(error, file=self._path)
        return CorruptError("the PDF is damaged beyond repair", file=self._path)

    def _no_pages(self) -> Exception:
        """Why PDFium sees no page in a PDF it did open."""
        try:
            brotli = pdf_bytes.uses_brotli(self._path)
        except OSError as error:
            return from_os_error(error, file=self._path)
        if brotli:
            return UnsupportedError("the PDF is compressed with Brotli", file=self._path)
        return NoPagesError("the PDF has no pages", file=self._path)

    def _describe(self) -> DocumentInfo:
        """What opening tells, from the document's own structures; no page is read for it."""
        import pypdfium2.raw as pdfium

        warnings: list[PageWarning] = []
        pages, claimed = self._count_pages(), len(self._pdf)
        if pages < claimed:
            warnings.append(PageWarning("page_count", f"claims {claimed} pages, has {pages}"))
        if pdfium.FPDF_GetFormType(self._pdf) == pdfium.FORMTYPE_XFA_FULL:
            warnings.append(PageWarning("xfa", "a dynamic XFA form: its content is not on the pages"))
        attachments = self._attachments()
        if attachments:
            warnings.append(
                PageWarning("attachments", f"embedded files that are not read: {len(attachments)}")
            )
            if self._is_portfolio():
                warnings.append(PageWarning("portfolio", "a portfolio: its content is in the attachments"))
        return DocumentInfo(
            media_type="application/pdf",
            pages=pages,
            labels=self._labels(pages),
            title=_text(pdfium.FPDF_GetMetaText, self._pdf, b"Title\0") or None,
            attachments=attachments,
            warnings=tuple(warnings),
            encrypted=pdfium.FPDF_GetSecurityHandlerRevision(self._pdf) >= 0,
        )

    def _count_pages(self) -> int:
        """The number of pages, which a wrong /Count cannot blow up.

        PDFium believes a /Count below a million; beyond `MAX_TRUSTED_PAGES` the last page must be there.
        """
        claimed = len(self._pdf)
        if claimed <= MAX_TRUSTED_PAGES or self._loads(claimed):
            return claimed
        first, beyond = 1, claimed  # page `beyond` is not there
        while beyond - first > 1:
            middle = (first + beyond) // 2
            first, beyond = (middle, beyond) if self._loads(middle) else (first, middle)
        return first

    def _loads(self, number: int) -> bool:
        import pypdfium2.raw as pdfium

        page = pdfium.FPDF_LoadPage(self._pdf, number - 1)
        if page:
            pdfium.FPDF_ClosePage(page)
        return bool(page)

    def _labels(self, pages: int) -> tuple[str | None, ...]:
        """The printed label of each page where it says more than the number; empty if none does."""
        import pypdfium2.raw as pdfium

        labels = tuple(
            None if label in ("", str(index + 1)) else label
            for index in range(pages)
            for label in (_text(pdfium.FPDF_GetPageLabel, self._pdf, index),)
        )
        return labels if any(labels) else ()

    def _is_portfolio(self) -> bool:
        try:
            return pdf_bytes.is_portfolio(self._path)
        except OSError as error:
            raise from_os_error(error, file=self._path) from error

    def _attachments(self) -> tuple[str, ...]:
        import pypdfium2.raw as pdfium

        count = min(pdfium.FPDFDoc_GetAttachmentCount(self._pdf), MAX_ATTACHMENTS)
        handles = (pdfium.FPDFDoc_GetAttachment(self._pdf, index) for index in range(count))
        return tuple(_text(pdfium.FPDFAttachment_GetName, handle) for handle in handles if handle)


def _spellings(passwords: Sequence[str]) -> list[str]:
    """The empty password, then each known one as given and in the normal forms writers of PDFs use, once each."""
    forms = [
        ("",),
        *((text, *(unicodedata.normalize(form, text) for form in ("NFC", "NFKC"))) for text in passwords),
    ]
    return list(dict.fromkeys(spelling for spellings in forms for spelling in spellings))


def _secret(password: str) -> bytes:
    """`password` for PDFium, which converts between UTF-8 and Latin-1 as the file's revision wants it."""
    try:
        return password.encode("utf-8", "surrogateescape") + b"\0"  # bytes from a command line as they were
    except UnicodeEncodeError:
        return password.encode("utf-8", "surrogatepass") + b"\0"


def _text(function: Any, *arguments: Any) -> str:
    """What one of PDFium's string functions returns: asked for the length in bytes first, then for UTF-16."""
    size = function(*arguments, None, 0)
    if size <= 2:
        return ""
    buffer = ctypes.create_string_buffer(size)
    # pypdfium2 declares some of these buffers as FPDF_WCHAR*, which ctypes does not take a char array for.
    kind = function.argtypes[-2] if function.argtypes else ctypes.c_void_p
    function(*arguments, ctypes.cast(buffer, kind), size)
    text = buffer.raw[: size - 2].decode("utf-16-le", "replace")
    return "".join(char for char in text if char.isprintable()).strip()


def _init_forms(document: Any) -> None:
    """Load the form environment, so that filled fields are drawn. Right after opening, before any page."""
    import pypdfium2
    import pypdfium2.raw as pdfium

    # Not PdfDocument.init_forms: that one logs a warning about its build for every XFA form.
    if pdfium.FPDF_GetFormType(document) == pdfium.FORMTYPE_NONE:
        return
    config = pdfium.FPDF_FORMFILLINFO(version=2)
    handle = pdfium.FPDFDOC_InitFormFillEnvironment(document, config)
    if handle:
        document.formenv = pypdfium2.PdfFormEnv(handle, config)
    else:
        log.warning("form fields cannot be drawn")


class _Tail(io.RawIOBase):
    """The part of a file from `start` on, as if it were a file."""

    def __init__(self, path: Path, start: int) -> None:
        self._raw = path.open("rb", buffering=0)
        self.start = start
        self.size = max(0, os.fstat(self._raw.fileno()).st_size - start)

    def read_at(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position` of this part."""
        return os.pread(self._raw.fileno(), size, self.start + position)

    def close(self) -> None:
        self._raw.close()
        super().close()


def _file_access(file: _Tail) -> Any:
    """A PDFium file access struct over `file`; to be kept as long as PDFium uses it."""
    import pypdfium2.raw as pdfium

    def block(_: Any, position: int, target: Any, size: int) -> int:
        try:
            data = file.read_at(position, size)
        except OSError:
            return 0
        if len(data) != size:
            return 0
        ctypes.memmove(target, data, size)
        return 1

    access = pdfium.FPDF_FILEACCESS()
    access.m_FileLen = file.size
    access.m_GetBlock = type(access.m_GetBlock)(block)
    access.m_Param = None
    return access
